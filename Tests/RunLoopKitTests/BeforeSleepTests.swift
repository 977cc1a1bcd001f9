import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// Work that is done once, before the loop sleeps.
@Suite(.timeLimit(.minutes(10)))
struct BeforeSleepTests {
    /// Runs enough turns with a sleep to see what each does; a wake-up ends each sleep.
    private static func runTurns(_ count: Int, of loop: EventRunLoop) {
        let turns = Counter()
        let counter = LoopObserver(activities: .afterWaiting) { _, _ in
            if turns.increment() == count { loop.stop() }
            loop.wakeUp()
        }
        loop.add(counter)
        loop.wakeUp()
        loop.run()
        counter.invalidate()
    }

    @Test("R14, R38: work is done once for a turn's changes, before the loop sleeps, at its order among the observers")
    func once() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.add(LoopObserver(activities: .beforeWaiting, order: 5) { _, _ in trace.note("observer 5") })
            loop.add(LoopObserver(activities: .afterWaiting) { _, _ in trace.note("woken") })
            for number in 1...3 {
                loop.perform {
                    trace.note("change \(number)")
                    loop.performBeforeWaiting("pool", order: .max) { trace.note("drain") }
                    loop.performBeforeWaiting("view", order: 2_000_000) { trace.note("commit \(number)") }
                    loop.performBeforeWaiting("first", order: .min) { trace.note("first") }
                }
            }
            Self.runTurns(2, of: loop)
            return trace.all
        }
        #expect(
            trace == [
                "change 1", "change 2", "change 3", "first", "observer 5", "commit 3", "drain", "woken", "observer 5",
                "woken",
            ]
        )
    }

    @Test(
        "Work of one order runs in the order of the requests; a repeated request keeps its place, a moved one does not"
    )
    func order() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            for key in [1, 2, 3, 1, 4] { loop.performBeforeWaiting(key) { trace.note("\(key)") } }
            loop.performBeforeWaiting(2, order: 1) { trace.note("2, later") }
            loop.performBeforeWaiting(ObjectIdentifier(loop)) { trace.note("the loop's") }
            trace.note("\(loop.cancelBeforeWaiting(4)) \(loop.cancelBeforeWaiting(5))")
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["true false", "1", "3", "the loop's", "2, later"])
    }

    @Test("Equal numbers of different types are one key")
    func equalKeys() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            for number in 0..<100 {
                loop.performBeforeWaiting(number) { trace.note("Int") }
                loop.performBeforeWaiting(UInt16(number)) { trace.note("UInt16") }
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == [String](repeating: "UInt16", count: 100))
    }

    @Test("R15: a run that only polls does the work at its end; work for an idle loop waits for a run that sleeps")
    func exit() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.performBeforeWaiting("a") { trace.note("work") }
            loop.performBeforeWaiting("b", at: .beforeWaiting) { trace.note("idle work") }
            loop.run(for: .zero)
            trace.note("polled")
            loop.run(for: .nanoseconds(1))
            return trace.all
        }
        #expect(trace == ["work", "polled", "idle work"])
    }

    @Test("Work that requests itself again is done once a turn: the loop neither sleeps nor stays in the pass")
    func again() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.add(LoopObserver(activities: .beforeTimers) { _, _ in trace.note("turn") })
            let remaining = Box(3)
            let work = Box<@Sendable () -> Void>({})
            work.value = {
                trace.note("work")
                remaining.value -= 1
                if remaining.value > 0 { loop.performBeforeWaiting("self", work.value) } else { loop.stop() }
            }
            loop.performBeforeWaiting("self", work.value)
            // Without a timeout: if the loop slept despite the work, the test would not end.
            loop.run()
            work.value = {}
            return trace.all
        }
        #expect(trace == ["turn", "work", "turn", "work", "turn", "work"])
    }

    @Test(
        "R27: a request by another thread ends the sleep; after a late observer's request the loop stays awake"
    )
    func wakes() async throws {
        let worker = try WorkerThread(name: "sleeper")
        let trace = Trace()
        await onLoopThread { _ in
            waitUntil { worker.loop.isWaiting }
            worker.loop.performBeforeWaiting("from elsewhere") { trace.note("1") }
            waitUntil { trace.all.count == 1 }
            let late = LoopObserver(activities: .beforeWaiting, order: .max, repeats: false) { _, _ in
                EventRunLoop.current.performBeforeWaiting("from late") { trace.note("2") }
            }
            worker.loop.add(late)
            worker.loop.wakeUp()
            waitUntil { trace.all.count == 2 }
        }
        #expect(trace.all == ["1", "2"])
        worker.stop()
    }

    @Test("A loop that never rests does work with a limit when the limit expires, and other work only when it rests")
    func limit() async {
        let (trace, time) = await onLoopThread { loop in
            let trace = Trace()
            let start = MonotonicInstant.now
            let busy = EventSource { source in
                if trace.all.isEmpty { source.signal() }
            }
            loop.add(busy)
            busy.signal()
            loop.performBeforeWaiting("patient") {
                trace.note("patient")
                loop.stop()
            }
            loop.performBeforeWaiting("limited", atLatest: .milliseconds(5)) { trace.note("limited") }
            loop.run(for: .seconds(60))
            return (trace.all, elapsed(since: start))
        }
        #expect(trace == ["limited", "patient"])
        #expect(time >= .milliseconds(5))
    }

    @Test("A repeated request with a shorter limit is done when that limit expires")
    func shorterLimit() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let busy = EventSource { source in
                if trace.all.isEmpty { source.signal() }
            }
            loop.add(busy)
            busy.signal()
            loop.performBeforeWaiting("patient") {
                trace.note("patient")
                loop.stop()
            }
            loop.performBeforeWaiting("limited", atLatest: .seconds(3600)) { trace.note("replaced") }
            loop.performBeforeWaiting("limited", atLatest: .zero) { trace.note("limited") }
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["limited", "patient"])
    }

    @Test("R23: the end of a nested run does the work; work that runs the loop is not done twice")
    func nested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.perform {
                loop.performBeforeWaiting("a") {
                    trace.note("a begins")
                    loop.run(for: .zero)
                    trace.note("a ends")
                }
                loop.performBeforeWaiting("b") { trace.note("b") }
                loop.run(for: .zero)
                trace.note("nested run over")
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["a begins", "a ends", "b", "nested run over"])
    }

    @Test("R23: work requested by a run nested in a late observer is done before the outer run sleeps")
    func requestedInsideObserver() async {
        let (result, trace) = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.performBeforeWaiting("early") { trace.note("early") }
            loop.add(
                LoopObserver(activities: .beforeWaiting, order: 1, repeats: false) { _, _ in
                    loop.perform(in: "inner", wake: false) {
                        loop.performBeforeWaiting("late") {
                            trace.note("late")
                            loop.stop()
                        }
                    }
                    loop.run(mode: "inner", for: .zero)
                    trace.note("nested run over")
                }
            )
            return (loop.run(for: .seconds(60)), trace.all)
        }
        #expect(result == .stopped)
        #expect(trace == ["early", "nested run over", "late"])
    }

    @Test("R2: work left when the thread ends is released; cancelled and replaced work is released at once")
    func released() async {
        let left = Box<WeakTrace?>(nil)
        let atOnce = await onLoopThread { loop in
            func hold() -> (WeakTrace, @Sendable () -> Void) {
                let held = Trace()
                return (WeakTrace(held), { held.note("") })
            }
            func put(_ key: Int) -> WeakTrace {
                let (witness, body) = hold()
                loop.performBeforeWaiting(key, body)
                return witness
            }
            let (first, second) = (put(1), put(1))
            let wereHeld = [first.trace == nil, second.trace == nil]
            loop.cancelBeforeWaiting(1)
            left.value = put(2)
            return wereHeld + [second.trace == nil, left.value?.trace == nil]
        }
        #expect(atOnce == [true, false, true, false])
        #expect(left.value?.trace == nil)
    }

    @Test("Work that is requested and cancelled many times, in a mode that does not run, takes no memory")
    func cancelledOften() async {
        final class Key: Hashable, Sendable {
            let freed: Counter

            init(_ freed: Counter) { self.freed = freed }

            deinit { freed.increment() }

            static func == (left: Key, right: Key) -> Bool { left === right }
            func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
        }
        let freed = Counter()
        let (freedBefore, trace) = await onLoopThread { loop in
            let trace = Trace()
            for number in 0..<1000 {
                let key = Key(freed)
                loop.performBeforeWaiting(key, in: "other") { trace.note("\(number)") }
                // One of a hundred stays.
                if number % 100 != 50 { loop.cancelBeforeWaiting(key) }
            }
            let freedBefore = freed.value
            occupy(loop, "other")
            loop.run(mode: "other", for: .zero)
            return (freedBefore, trace.all)
        }
        #expect(freedBefore > 900)
        #expect(trace == (0..<10).map { "\(100 * $0 + 50)" })
        #expect(freed.value == 1000)
    }

    @Test("R2: keys are released outside all locks: of work done, cancelled, moved, or left when the thread ends")
    func keysReleased() async {
        struct Key: Hashable {
            let number: Int
            let held: LoopUserInDeinit

            static func == (left: Key, right: Key) -> Bool { left.number == right.number }
            func hash(into hasher: inout Hasher) { hasher.combine(number) }
        }
        let (trace, atEnd) = (Trace(), Trace())
        let beforeEnd = await onLoopThread { loop in
            func request(_ number: Int, order: Int = 0, _ trace: Trace) {
                let key = Key(number: number, held: LoopUserInDeinit(of: loop, trace))
                loop.performBeforeWaiting(key, order: order) { trace.note("work \(number)") }
                if number == 2 { loop.cancelBeforeWaiting(key) }
            }
            occupy(loop)
            request(1, trace)
            request(2, trace)
            request(3, trace)
            request(3, order: 1, trace)
            loop.run(for: .zero)
            let beforeEnd = trace.all
            request(4, atEnd)
            return beforeEnd
        }
        let freed = "freed, modes: [\"default\"]"
        #expect(beforeEnd.filter { $0 == freed }.count == 4)
        #expect(beforeEnd.filter { $0 != freed } == ["work 1", "work 3"])
        #expect(atEnd.all == [freed])
    }

    @Test("All work that many threads request is done")
    func storm() async throws {
        let worker = try WorkerThread(name: "before")
        let done = Counter()
        await onLoopThread { _ in
            let threads = (0..<4).map { thread in
                TestThread {
                    for number in 0..<500 {
                        worker.loop.performBeforeWaiting(thread * 500 + number, order: number % 3) { done.increment() }
                    }
                }
            }
            for thread in threads { thread.join() }
            waitUntil { done.value == 2000 }
            worker.stop()
            worker.join()
        }
        #expect(done.value == 2000)
    }
}
