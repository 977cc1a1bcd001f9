import LoopTestSupport
import RunLoopKit
import Testing

/// R51.
@Suite(.timeLimit(.minutes(10)))
struct BlockTests {
    @Test("R51: blocks run first in, first out; blocks for other modes keep their places")
    func order() async {
        let (inDefault, inOther) = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            occupy(loop, "other")
            loop.perform { trace.note("1") }
            loop.perform(in: "other") { trace.note("2") }
            loop.perform(in: ["other", .default]) { trace.note("3") }
            loop.perform(in: "other") { trace.note("4") }
            loop.perform { trace.note("5") }
            loop.run(for: .zero)
            let inDefault = trace.all
            loop.perform(in: "other") { trace.note("6") }
            loop.run(mode: "other", for: .zero)
            return (inDefault, Array(trace.all.dropFirst(inDefault.count)))
        }
        #expect(inDefault == ["1", "3", "5"])
        #expect(inOther == ["2", "4", "6"])
    }

    @Test("R51: common matches every common mode, including one that became common after the block was passed over")
    func common() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop, "late")
            loop.perform(in: .common) { trace.note("common") }
            loop.run(mode: "late", for: .zero)
            trace.note("not yet")
            loop.addCommonMode("late")
            loop.run(mode: "late", for: .zero)
            return trace.all
        }
        #expect(trace == ["not yet", "common"])
    }

    @Test("R51, R52, R53: work without a mode runs in every common mode and in no other")
    func commonByDefault() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            for mode: EventRunLoop.Mode in ["shared", "private"] { occupy(loop, mode) }
            loop.addCommonMode("shared")
            loop.perform { trace.note("block") }
            loop.performAsSource { trace.note("request") }
            loop.perform(after: .zero) { trace.note("delayed") }
            loop.performBeforeWaiting("key") { trace.note("before waiting") }
            loop.run(mode: "private", for: .zero)
            trace.note("private is over")
            for _ in 0..<4 { loop.run(mode: "shared", for: .zero) }
            return trace.all
        }
        #expect(trace.first == "private is over")
        #expect(Set(trace.dropFirst()) == ["block", "request", "delayed", "before waiting"])
    }

    @Test("R51: a block enqueued by a block runs at the next drain point, not in the same one")
    func nextDrainPoint() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            occupy(loop)
            loop.perform {
                trace.note("first")
                loop.perform { trace.note("second") }
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["entry", "timers", "sources", "first", "second", "exit"])
    }

    @Test("R51: blocks that one mode skips run in another, and later blocks are found in each")
    func passedOver() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            for mode: EventRunLoop.Mode in [.default, "a", "b"] { occupy(loop, mode) }
            for number in 1...2 { loop.perform(in: "a") { trace.note("a\(number)") } }
            loop.perform(in: "b") { trace.note("b1") }
            loop.run(for: .zero)
            loop.perform { trace.note("1") }
            loop.perform(in: ["b", .default]) { trace.note("2") }
            loop.run(for: .zero)
            loop.run(mode: "a", for: .zero)
            loop.perform { trace.note("3") }
            loop.perform(in: "b") { trace.note("b2") }
            loop.run(for: .zero)
            loop.run(mode: "b", for: .zero)
            trace.note("left: \(loop.snapshot.queuedBlocks)")
            return trace.all
        }
        #expect(trace == ["1", "2", "a1", "a2", "3", "b1", "b2", "left: 0"])
    }

    /// If every turn searched all of them, the suite's time limit would be exceeded.
    @Test("R51: blocks parked for a mode that does not run cost another mode's turns nothing")
    func parked() async {
        let (ran, left, unparked) = await onLoopThread { loop in
            let (ran, unparked) = (Counter(), Counter())
            occupy(loop)
            for _ in 0..<20_000 { loop.perform(in: "parked") { unparked.increment() } }
            for _ in 0..<20_000 {
                loop.perform { ran.increment() }
                loop.run(for: .zero)
            }
            let left = loop.snapshot.queuedBlocks
            loop.run(mode: "parked", for: .zero)
            return (ran.value, left, unparked.value)
        }
        #expect(ran == 20_000 && left == 20_000 && unparked == 20_000)
    }

    @Test("A nested run runs the blocks added since; the rest of the batch runs after it")
    func nested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.perform {
                loop.perform { trace.note("new") }
                loop.run(for: .zero)
                trace.note("nested run over")
            }
            loop.perform { trace.note("rest") }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["new", "nested run over", "rest"])
    }

    @Test("R2: blocks pending when the thread ends are released, not run")
    func released() async {
        let trace = Trace()
        let witness = Box<WeakTrace?>(nil)
        _ = await onLoopThread { loop in
            let held = Trace()
            witness.value = WeakTrace(held)
            loop.perform {
                held.note("")
                trace.note("ran")
            }
            return true
        }
        #expect(trace.all == [])
        #expect(witness.value?.trace == nil)
    }
}

struct WeakTrace: Sendable {
    weak let trace: Trace?
    init(_ trace: Trace) { self.trace = trace }
}
