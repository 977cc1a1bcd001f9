import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// More of Chromium's run loop cases: runs after runs and inside runs.
@Suite(.timeLimit(.minutes(10)))
struct ChromiumNestingTests {
    @Test(
        "R18: a loop can be polled again and again, with and without work, and can run longer afterwards",
        .stands(for: "RunLoopTest.CanRunUntilIdleMoreThanOnce", "RunLoopTest.CanRunUntilIdleThenRunIfNotQuit")
    )
    func pollAndRun() async {
        let (ran, results) = await onLoopThread { loop in
            let ran = Counter()
            occupy(loop)
            var results: [EventRunLoop.RunResult] = []
            for _ in 0..<2 {
                loop.perform { ran.increment() }
                results.append(loop.run(for: .zero))
            }
            results.append(loop.run(for: .zero))
            loop.perform { loop.stop() }
            return (ran.value, results + [loop.run(for: .seconds(60))])
        }
        #expect(ran == 2)
        #expect(results == [.timedOut, .timedOut, .timedOut, .stopped])
    }

    @Test(
        "R28: a run nested by a source serves the other signalled source; observers see each entry and exit",
        .stands(for: "RunLoopTest.NestingObservers")
    )
    func nesting() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            loop.add(LoopObserver(activities: [.entry, .exit]) { _, activity in trace.note(name(of: activity)) })
            let nests: @Sendable (EventSource) -> Void = { _ in loop.run(for: .zero) }
            let sources = [
                EventSource(order: 0, nests), EventSource(order: 1) { _ in trace.note("a") },
                EventSource(order: 2, nests), EventSource(order: 3) { _ in trace.note("b") },
            ]
            for source in sources {
                loop.add(source)
                source.signal()
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["entry", "entry", "a", "entry", "b", "exit", "exit", "exit"])
    }

    @Test(
        "R30: what a nested run leaves is performed once, by the interrupted pass, and not remembered afterwards",
        .stands(for: "RunLoopTest.NestingObservers")
    )
    func leftByNestedRun() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let nests = EventSource { _ in
                trace.note("nested: \(loop.run(for: .zero, returnAfterSourceHandled: true))")
            }
            let others = ["a", "b", "c"].map { name in EventSource(order: 1) { _ in trace.note(name) } }
            for source in [nests] + others {
                loop.add(source)
                source.signal()
            }
            loop.run(for: .zero)
            for source in others { loop.remove(source) }
            for source in others { source.signal() }
            trace.note("\(loop.run(for: .zero, returnAfterSourceHandled: true))")
            return trace.all
        }
        #expect(trace == ["a", "nested: handledSource", "b", "c", "timedOut"])
    }

    @Test(
        "R14: a nested run of another mode leaves the outer mode's work alone, and sleeps meanwhile",
        .stands(for: "RunLoopDelegateTest.NestableTasksDontRunInDefaultNestedLoops")
    )
    func workOfTheOuterMode() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            occupy(loop, "private")
            loop.perform {
                let other = TestThread {
                    waitUntil { loop.isWaiting && loop.currentMode == "private" }
                    trace.note("the nested run sleeps")
                    loop.stop()
                }
                trace.note("nested: \(loop.run(mode: "private", for: .seconds(60)))")
                other.join()
            }
            loop.perform {
                trace.note("work of \(loop.currentMode?.name ?? "none")")
                loop.stop()
            }
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["the nested run sleeps", "nested: stopped", "work of default"])
    }
}

/// Blocks that are counted, so that a loop can be stopped when none is left.
final class TaskList: Sendable {
    private let loop: EventRunLoop
    private let pending = Atomic<Int>(0)

    init(on loop: EventRunLoop) { self.loop = loop }

    func post(_ task: @escaping @Sendable () -> Void) {
        pending.add(1, ordering: .sequentiallyConsistent)
        loop.perform { [self] in
            task()
            pending.subtract(1, ordering: .sequentiallyConsistent)
        }
    }

    /// Work for tomorrow does not keep the loop from being idle.
    func postTomorrow(_ task: @escaping @Sendable () -> Void) {
        loop.add(EventTimer(after: .seconds(86_400)) { _ in task() })
    }

    /// The observers of beforeWaiting are called when a turn has found nothing to do; the last one stops the loop.
    func stopWhenIdle() {
        let idle = LoopObserver(activities: .beforeWaiting, order: .max) { [self] observer, _ in
            guard pending.load(ordering: .sequentiallyConsistent) == 0 else { return }
            observer.invalidate()
            loop.stop()
        }
        loop.add(idle)
    }
}
