import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of GNUstep base's NSRunLoop/performers, counted in the order of its checks. A performer with an order is
/// a source here; one that can be cancelled is a perform after no delay.
@Suite(.timeLimit(.minutes(10)))
struct GNUstepPerformerTests {
    @Test(
        "R52: a request is performed in the next run, and not again in the one after",
        .stands(for: "GNUstep performers.1", "GNUstep performers.2")
    )
    func performedOnce() async {
        let performs = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.performAsSource(in: [.default]) { trace.note("performed") }
            loop.run(for: .zero)
            trace.note("next run")
            loop.run(for: .milliseconds(2))
            return trace.all
        }
        #expect(performs == ["performed", "next run"])
    }

    @Test(
        "R28: a later source goes first if its order says so",
        .stands(for: "GNUstep performers.3")
    )
    func ordered() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            for order in [11, 10] {
                let source = EventSource(order: order) { source in
                    trace.note("\(source.order)")
                    source.invalidate()
                }
                loop.add(source)
                source.signal()
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["10", "11"])
    }

    @Test(
        "R53: one of three performs is cancelled; the others are performed in their order",
        .stands(for: "GNUstep performers.4")
    )
    func oneCancelled() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let performs = ["first", "second", "third"].map { name in loop.perform(after: .zero) { trace.note(name) } }
            performs[1].cancel()
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["first", "third"])
    }

    @Test(
        "R53: all performs of a target are cancelled and the mode is empty; another target's is performed",
        .stands(for: "GNUstep performers.5")
    )
    func targetCancelled() async {
        let (trace, result) = await onLoopThread { loop in
            let (trace, target, other) = (Trace(), Trace(), Trace())
            for name in ["first", "second"] { loop.perform(after: .zero, target: target) { trace.note(name) } }
            loop.perform(after: .zero, target: other) { trace.note("other") }
            loop.cancelPerforms(target: target)
            let result = loop.run(for: .seconds(60))
            return (trace.all, result)
        }
        #expect(trace == ["other"])
        #expect(result == .finished)
    }
}
