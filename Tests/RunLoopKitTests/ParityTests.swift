import LoopTestSupport
import RunLoopKit
import Testing

/// The smallest form of each difference found by the differential test: here the loop once deviated from Foundation's, and from
/// the rules.
@Suite(.timeLimit(.minutes(10)))
struct ParityTests {
    @Test("R22: a stop with no activation running leaves no wake-up behind")
    func ignoredStop() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            observe(loop, in: trace)
            loop.stop()
            loop.run(for: .milliseconds(2))
            return trace.all
        }
        #expect(trace == ["entry", "timers", "sources", "waiting", "woken", "exit"])
    }

    @Test("R12, R18: the time of a run starts after its entry observers")
    func timeOfRun() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.add(
                LoopObserver(activities: .entry, repeats: false) { _, _ in
                    trace.note("inner \(loop.run(for: .milliseconds(30)))")
                }
            )
            let start = MonotonicInstant.now
            trace.note("outer \(loop.run(for: .milliseconds(30)))")
            return trace.all + [elapsed(since: start) >= .milliseconds(60) ? "one after the other" : "at once"]
        }
        #expect(trace == ["inner timedOut", "outer timedOut", "one after the other"])
    }

    @Test("R23: a nested run performs the sources that the outer pass has not reached yet", arguments: [false, true])
    func nestedRunInPass(returnsAfterSource: Bool) async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let first = EventSource(order: 0) { _ in
                trace.note("first")
                loop.run(for: .zero)
                trace.note("first ends")
            }
            let second = EventSource(order: 1) { _ in trace.note("second") }
            for source in [first, second] {
                loop.add(source)
                source.signal()
            }
            loop.run(for: .zero, returnAfterSourceHandled: returnsAfterSource)
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["first", "second", "first ends"])
    }

    @Test("R23, R29: a source performed in a nested run and signalled again is performed exactly once more")
    func signalledAgainInNestedRun() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let second = EventSource(order: 1) { _ in trace.note("second") }
            let first = EventSource(order: 0) { _ in
                loop.run(for: .zero)
                second.signal()
                trace.note("first")
            }
            for source in [first, second] {
                loop.add(source)
                source.signal()
            }
            for _ in 0..<3 { loop.run(for: .zero) }
            second.signal()
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["second", "first", "second", "second"])
    }

    @Test("R25: a wake-up taken by a run is passed on, even if a run inside that run takes none")
    func wakeUpTakenBeforeNestedRun() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            observe(loop, in: trace)
            let nesting = LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                loop.wakeUp()
                let innermost = LoopObserver(activities: .afterWaiting, repeats: false) { _, _ in
                    loop.run(mode: "other", for: .zero)
                }
                occupy(loop, "other")
                loop.add(innermost)
                loop.run(for: .milliseconds(5))
                trace.clear()
            }
            loop.add(nesting)
            let late = EventTimer(after: .seconds(20)) { _ in trace.note("too late") }
            loop.add(late)
            loop.add(
                LoopObserver(activities: .afterWaiting, order: 1) { _, _ in if trace.all == ["woken"] { loop.stop() } }
            )
            loop.run(for: .seconds(30))
            return trace.all
        }
        #expect(trace == ["woken", "exit"])
    }

    @Test("R28: a source performed through another mode and signalled in a pass waits for the next pass")
    func staleEntry() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let second = EventSource(order: 1) { _ in trace.note("second") }
            let first = EventSource(order: 0) { _ in
                trace.note("first")
                second.signal()
            }
            loop.add(first)
            loop.add(second)
            loop.add(second, to: "other")
            second.signal()
            loop.run(mode: "other", for: .zero)
            first.signal()
            loop.run(for: .zero)
            trace.note("next")
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["second", "first", "next", "second"])
    }

    @Test("R33: an invalid source is not signalled")
    func invalidIsNotSignalled() {
        let source = EventSource { _ in }
        source.signal()
        source.invalidate()
        #expect(!source.isSignalled)
    }

    @Test("R43: a due timer that an earlier one of the pass removes from this mode only still fires")
    func removedFromOneMode() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let start = MonotonicInstant.now
            let second = EventTimer(at: start, order: 1) { _ in trace.note("second") }
            let first = EventTimer(at: start) { _ in
                trace.note("first")
                loop.remove(second)
            }
            for timer in [first, second] { loop.add(timer) }
            loop.add(second, to: "other")
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["first", "second"])
    }

    @Test("R23, R43: a due timer removed from the mode does not fire in a nested run of it")
    func removedAndNested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let start = MonotonicInstant.now
            let second = EventTimer(at: start, order: 1) { _ in trace.note("second") }
            let third = EventTimer(at: start, order: 2) { _ in trace.note("third") }
            let first = EventTimer(at: start) { _ in
                loop.remove(second)
                loop.run(for: .zero)
                trace.note("first ends")
            }
            for timer in [first, second, third] { loop.add(timer) }
            loop.add(second, to: "other")
            loop.run(for: .zero)
            loop.run(mode: "other", for: .zero)
            return trace.all
        }
        #expect(trace == ["third", "first ends", "second"])
    }

    @Test("R43: a timer moved during the pass to a date that has passed when its turn comes fires in the pass")
    func movedAndDueAgain() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            let start = MonotonicInstant.now
            let second = EventTimer(at: start, order: 1) { _ in trace.note("second") }
            let first = EventTimer(at: start) { _ in
                trace.note("first")
                second.nextFireDate = .now
            }
            for timer in [first, second] { loop.add(timer) }
            loop.run(for: .seconds(20))
            return trace.all
        }
        #expect(trace.drop { $0 != "first" }.prefix(2) == ["first", "second"])
    }

    @Test("R43: a timer that becomes due while observers see the end of the sleep fires with the others")
    func dueInAfterWaiting() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let second = EventTimer(at: .distantFuture) { _ in trace.note("second") }
            let first = EventTimer(after: .milliseconds(1)) { _ in trace.note("first") }
            for timer in [first, second] { loop.add(timer) }
            loop.add(LoopObserver(activities: .afterWaiting, repeats: false) { _, _ in second.nextFireDate = .now })
            loop.add(LoopObserver(activities: .beforeTimers) { _, _ in trace.note("turn") })
            loop.run(for: .seconds(20))
            return trace.all
        }
        #expect(trace == ["turn", "first", "second"])
    }
}
