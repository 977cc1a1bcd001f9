import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of WinObjC's NSObject_CancelPreviousPerformRequests and NSRunLoop suites.
@Suite(.timeLimit(.minutes(10)))
struct WinObjCPerformTests {
    @Test(
        "R53: what is to be performed after a delay is performed by the loop's thread, not sooner",
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
        "R53: a target's perform that was cancelled while the loop waited for it does not come",
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
        "R53: one of a target's two performs is cancelled, the other comes",
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
        "R53: a perform in the default and the common modes, cancelled before it could be due, does not come in either",
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
