import Glibc
import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// The cases of WebKit's WTF_RunLoop.
@Suite(.timeLimit(.minutes(10)))
struct WebKitRunLoopTests {
    @Test(
        "R51: objects of a block may enqueue another block in their deinit: no lock is held then",
        .stands(for: "WTF_RunLoop.Deadlock")
    )
    func enqueuedByDeinit() async {
        let count = await onLoopThread { loop in
            let count = Counter()
            occupy(loop)
            for _ in 0..<100 {
                let held = AtEnd { loop.perform { if count.increment() == 100 { loop.stop() } } }
                loop.perform { withExtendedLifetime(held) {} }
            }
            loop.run(for: .seconds(60))
            return count.value
        }
        #expect(count == 100)
    }

    @Test(
        "R51: a custom queue, drained by blocks, keeps its order in a run that its first entry nests",
        .stands(for: "WTF_RunLoop.NestedInOrder")
    )
    func nestedInOrder() async {
        let trace = await onLoopThread { loop in
            let (trace, queue) = (Trace(), WorkQueue(on: loop))
            occupy(loop)
            queue.dispatch {
                queue.dispatch {
                    trace.note("dispatched by the first")
                    loop.stop()
                }
                trace.note("nested: \(loop.run(for: .seconds(20)))")
                loop.stop()
            }
            queue.dispatch { trace.note("second") }
            loop.run(for: .seconds(20))
            return trace.all
        }
        #expect(trace == ["second", "dispatched by the first", "nested: stopped"])
    }

    @Test(
        "R23: a block from another thread runs in a run nested by a block, although others wait for that block",
        .stands(for: "WTF_RunLoop.DispatchCrossThreadWhileNested")
    )
    func crossThreadWhileNested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.perform {
                let other = TestThread {
                    waitUntil { loop.isWaiting }
                    loop.perform {
                        trace.note("from elsewhere")
                        loop.stop()
                    }
                }
                trace.note("nested: \(loop.run(for: .seconds(20)))")
                other.join()
                loop.stop()
            }
            loop.perform { trace.note("later block") }
            loop.run(for: .seconds(20))
            return trace.all
        }
        #expect(trace == ["from elsewhere", "nested: stopped", "later block"])
    }

    @Test(
        "R23: so it does on the main thread",
        .stands(for: "WTF_RunLoop.CallOnMainCrossThreadWhileNested")
    )
    func callOnMain() throws {
        let run = try Fixture.run("RunLoopFixture", "foreign cross-thread-while-nested")
        #expect(run.lines == ["from elsewhere", "nested: stopped", "later block", "outer: stopped"])
    }

    @Test(
        "R42: in its callout a one-shot has no next fire date, and ending it there does no harm",
        .stands(for: "WTF_RunLoop.OneShotTimer")
    )
    func oneShot() async {
        let (next, isValid) = await onLoopThread { loop in
            let next = Box<MonotonicInstant?>(.now)
            let timer = EventTimer(after: .milliseconds(10)) { timer in
                next.value = loop.nextTimerFireDate()
                timer.invalidate()
            }
            loop.add(timer)
            loop.run(for: .seconds(60))
            return (next.value, timer.isValid)
        }
        #expect(next == nil)
        #expect(!isValid)
    }

    @Test(
        "R44: a repeating timer continues until its tenth callout ends it",
        .stands(for: "WTF_RunLoop.RepeatingTimer")
    )
    func repeating() async {
        let (trace, contained) = await onLoopThread { loop in
            let trace = Trace()
            let timer = EventTimer(every: .milliseconds(1)) { timer in
                trace.note("\(timer.isValid)")
                if trace.all.count == 10 { timer.invalidate() }
            }
            loop.add(timer)
            loop.run(for: .seconds(60))
            return (trace.all, loop.contains(timer) || timer.isValid)
        }
        #expect(trace == Array(repeating: "true", count: 10))
        #expect(!contained)
    }

    @Test(
        "R51: a hundred thousand blocks run, each enqueued by the one before; the last one stops the loop",
        .stands(for: "WTF_RunLoop.ManyTimes")
    )
    func manyTimes() async {
        let count = await onLoopThread { loop in
            let count = Counter()
            loop.perform { again(count, on: loop) }
            loop.run()
            return count.value
        }
        #expect(count == 100_000)
    }

    @Test(
        "R2: a pending block that retains its own loop does not keep it after its thread's end",
        .stands(for: "WTF_RunLoop.ThreadTerminationSelfReferenceCleanup")
    )
    func selfReference() {
        let ended = Box<WeakReference<EventRunLoop>?>(nil)
        TestThread {
            let loop = EventRunLoop.current
            ended.value = WeakReference(loop)
            loop.perform { withExtendedLifetime(loop) {} }
        }.join()
        #expect(ended.value != nil && ended.value?.object == nil)
    }

    @Test(
        "R3: only its own thread can run a loop; another thread that tries traps",
        .stands(
            for: "WTF_RunLoop.CapabilityIsCurrentIsSupported",
            "WTF_RunLoop.CapabilityIsCurrentNegativeDeathTest"
        )
    )
    func ownThreadOnly() async {
        let result = await onLoopThread { loop in loop.run(for: .zero) }
        #expect(result == .finished)
        await #expect(processExitsWith: .failure) {
            TestThread { EventRunLoop.main.run(for: .zero) }.join()
        }
    }

    @Test(
        "R22: a thread that runs its loop does its work, and is gone with its loop after a stop",
        .stands(for: "WTF_RunLoop.Create")
    )
    func workerThread() {
        let loop = Box<WeakReference<EventRunLoop>?>(nil)
        let id = Box<Int32>(0)
        let worker = TestThread {
            let current = EventRunLoop.current
            occupy(current)
            loop.value = WeakReference(current)
            current.run()
        }
        waitUntil { loop.value?.object?.isWaiting == true }
        loop.value?.object?.perform { id.value = EventRunLoop.current.thread?.id ?? 0 }
        waitUntil { id.value != 0 }
        #expect(unsafe access("/proc/self/task/\(id.value)", F_OK) == 0)
        loop.value?.object?.perform { EventRunLoop.current.stop() }
        worker.join()
        waitUntil { unsafe access("/proc/self/task/\(id.value)", F_OK) != 0 }
        #expect(loop.value?.object == nil)
    }
}

/// Counts to 100,000, one block per number, and then stops the loop.
private func again(_ count: Counter, on loop: EventRunLoop) {
    if count.increment() == 100_000 { return loop.stop() }
    loop.perform { again(count, on: loop) }
}

/// First in, first out, whichever run drains it: each block takes everything.
private final class WorkQueue: Sendable {
    private let loop: EventRunLoop
    private let waiting = Mutex<[@Sendable () -> Void]>([])

    init(on loop: EventRunLoop) { self.loop = loop }

    func dispatch(_ work: @escaping @Sendable () -> Void) {
        waiting.withLock { $0.append(work) }
        loop.perform { [self] in while let work = next() { work() } }
    }

    private func next() -> (@Sendable () -> Void)? {
        waiting.withLock { $0.isEmpty ? nil : $0.removeFirst() }
    }
}

/// Calls back when it is released.
final class AtEnd: Sendable {
    private let callback: @Sendable () -> Void

    init(_ callback: @escaping @Sendable () -> Void) { self.callback = callback }

    deinit { callback() }
}

struct WeakReference<Object: AnyObject & Sendable>: Sendable {
    weak let object: Object?

    init(_ object: Object) { self.object = object }
}
