import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// The cases of GNUstep corebase's CFRunLoop folder, counted in the order of its checks.
@Suite(.timeLimit(.minutes(10)))
struct CorebaseRunLoopTests {
    private struct Seen: Sendable {
        let (first, second): (Int, Int)
        let (nested, outer, after): (EventRunLoop.RunResult, EventRunLoop.RunResult, EventRunLoop.RunResult)
    }

    @Test(
        "R23, R28: a source that runs another mode is performed once; one in both modes also in the nested run",
        .stands(
            for: "corebase source.1",
            "corebase source.2",
            "corebase source.3",
            "corebase source.4",
            "corebase source.5",
            "corebase source.6",
            "corebase source.7",
            "corebase source.8"
        )
    )
    func twoModes() async {
        let seen = await onLoopThread { loop in
            let (first, second) = (Counter(), Counter())
            let nested = Box(EventRunLoop.RunResult.finished)
            let both = EventSource(order: 1) { _ in second.increment() }
            let outer = EventSource { source in
                first.increment()
                // Only when the nested run waits, so that it is served there and not by the current pass.
                let other = TestThread {
                    waitUntil { loop.isWaiting }
                    source.signal()
                    both.signalAndWake()
                    waitUntil { second.value == 2 }
                    loop.stop()
                }
                nested.value = loop.run(mode: "another", for: .seconds(60))
                other.join()
                source.invalidate()
            }
            loop.add(outer)
            loop.add(both)
            loop.add(both, to: "another")
            outer.signal()
            both.signal()
            let result = loop.run(for: .zero, returnAfterSourceHandled: true)
            both.invalidate()
            return Seen(
                first: first.value,
                second: second.value,
                nested: nested.value,
                outer: result,
                after: loop.run(for: .zero, returnAfterSourceHandled: true)
            )
        }
        #expect(seen.first == 1)
        #expect(seen.second == 2)
        #expect(seen.nested == .stopped)
        #expect(seen.outer == .handledSource)
        #expect(seen.after == .finished)
    }

    @Test(
        "R33: a source is in the mode that it was added to, and in none once invalid",
        .stands(for: "corebase source_invalidate.1", "corebase source_invalidate.2")
    )
    func invalidated() async {
        let (before, after) = await onLoopThread { loop in
            let source = occupy(loop)
            let before = loop.contains(source)
            source.invalidate()
            return (before, loop.contains(source))
        }
        #expect(before)
        #expect(!after)
    }

    @Test(
        "R27: a timer that another thread adds to a waiting loop fires first; the last timer's end ends the run",
        .stands(for: "corebase timers.1", "corebase timers.2", "corebase timers.3", "corebase timers.4")
    )
    func addedWhileWaiting() async {
        let (trace, result) = await onLoopThread { loop in
            let trace = Trace()
            let added = Box<TestThread?>(nil)
            let repeating = EventTimer(at: .now, every: .seconds(20)) { timer in
                trace.note("repeating")
                guard added.value == nil else { return timer.invalidate() }
                added.value = TestThread {
                    waitUntil { loop.isWaiting }
                    let single = EventTimer(after: .milliseconds(2)) { _ in
                        trace.note("single")
                        timer.nextFireDate = .now
                    }
                    loop.add(single, to: .common)
                }
            }
            loop.add(repeating, to: .common)
            let result = loop.run(for: .seconds(60))
            added.value?.join()
            return (trace.all, result)
        }
        #expect(trace == ["repeating", "single", "repeating"])
        #expect(result == .finished)
    }
}
