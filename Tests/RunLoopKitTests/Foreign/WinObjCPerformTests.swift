import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of WinObjC's NSObject_CancelPreviousPerformRequests and NSRunLoop suites.
@Suite(.timeLimit(.minutes(10)))
struct WinObjCPerformTests {
    @Test(
        "R53: a perform with a delay is performed by the loop's thread, not sooner",
        .stands(for: "NSObject.PerformSelectorAfterDelaySanity")
    )
    func afterDelay() async {
        let (wasEarly, isPending, onLoop) = await onLoopThread { loop in
            let date = MonotonicInstant.now.advanced(by: .milliseconds(10))
            let seen = Box<(Bool, Bool)>((true, false))
            let perform = loop.perform(after: .milliseconds(10)) {
                seen.value = (MonotonicInstant.now < date, EventRunLoop.current === loop)
            }
            loop.run(for: .seconds(60))
            return (seen.value.0, perform.isPending, seen.value.1)
        }
        #expect(!wasEarly)
        #expect(!isPending)
        #expect(onLoop)
    }

    @Test(
        "R53: a target's perform that is cancelled while the loop waits for it does not run",
        .stands(for: "NSObject.CancelPreviousPerformRequestsWithTarget")
    )
    func cancelledByTarget() async {
        let (performs, result) = await onLoopThread { loop in
            let (performs, target) = (Counter(), Trace())
            loop.perform(after: .seconds(60), target: target) { performs.increment() }
            loop.run(for: .milliseconds(1))
            loop.cancelPerforms(target: target)
            let result = loop.run(for: .seconds(60))
            return (performs.value, result)
        }
        #expect(performs == 0)
        #expect(result == .finished)
    }

    @Test(
        "R53: of a target's two performs one is cancelled, the other runs",
        .stands(for: "NSObject.CancelPreviousPerformRequestsWithTargetSelectorObject")
    )
    func oneOfTwo() async {
        let trace = await onLoopThread { loop in
            let (trace, target) = (Trace(), Trace())
            loop.perform(after: .milliseconds(5), target: target) { trace.note("kept") }
            let second = loop.perform(after: .seconds(60), target: target) { trace.note("cancelled") }
            loop.run(for: .milliseconds(1))
            second.cancel()
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["kept"])
    }

    @Test(
        "R53: a perform in default and common modes, cancelled before it was due, runs in neither",
        .stands(for: "NSRunLoop.CancelPerformSelector")
    )
    func cancelledInTwoModes() async {
        let performs = await onLoopThread { loop in
            let performs = Counter()
            loop.addCommonMode("other")
            for mode in [EventRunLoop.Mode.default, "other"] { occupy(loop, mode) }
            loop.perform(after: .zero, in: [.default, .common]) { performs.increment() }.cancel()
            for mode in [EventRunLoop.Mode.default, "other"] { loop.run(mode: mode, for: .milliseconds(2)) }
            return performs.value
        }
        #expect(performs == 0)
    }
}
