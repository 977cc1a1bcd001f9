import LoopTestSupport
import RunLoopKit
import Testing

/// R11 to R21: what one call of `run` does, seen by an observer of everything.
@Suite(.timeLimit(.minutes(10)))
struct TurnTests {
    @Test("R11: an empty mode returns finished at once, and no observer sees an entry or an exit")
    func emptyMode() async {
        let (result, trace) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            loop.run()
            return (loop.run(for: .seconds(60)), trace.all)
        }
        #expect(result == .finished)
        #expect(trace == [])
    }

    @Test("R4, R11: an unused mode is empty, and running it does not create it")
    func unknownMode() async {
        let (result, name) = await onLoopThread { loop in (loop.run(mode: "never used"), loop.modeName(at: 1)) }
        #expect(result == .finished)
        #expect(name == nil)
    }

    @Test("R8: a run in the common modes returns finished at once")
    func commonIsNoMode() async {
        let result = await onLoopThread { loop in
            occupy(loop, .common)
            return loop.run(mode: .common, for: .seconds(60))
        }
        #expect(result == .finished)
    }

    @Test("R12, R14: a turn that sleeps goes through the activities in order, and the timeout ends it")
    func sleepingTurn() async {
        let (result, trace) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            occupy(loop)
            return (loop.run(for: .milliseconds(5)), trace.all)
        }
        #expect(result == .timedOut)
        #expect(trace == ["entry", "timers", "sources", "waiting", "woken", "exit"])
    }

    @Test("R14: blocks, sources, blocks again, and after the poll blocks once more")
    func orderOfWork() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            let source = EventSource { _ in
                trace.note("source")
                loop.perform { trace.note("block of the source") }
            }
            loop.add(source)
            source.signal()
            loop.perform {
                trace.note("block")
                loop.perform { trace.note("block of the block") }
            }
            loop.add(
                EventTimer(at: .now) { _ in
                    trace.note("timer")
                    loop.perform { trace.note("block of the timer") }
                }
            )
            loop.run(for: .zero)
            return trace.all
        }
        #expect(
            trace == [
                "entry", "timers", "sources", "block", "source", "block of the block", "block of the source",
                "timer", "block of the timer", "exit",
            ]
        )
    }

    @Test("R15: a turn in which a source was handled only polls, and has no waiting activities")
    func pollingTurn() async {
        let (result, trace) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            let source = EventSource { _ in trace.note("source") }
            loop.add(LoopObserver(activities: .beforeWaiting) { _, _ in loop.stop() })
            loop.add(source)
            source.signal()
            return (loop.run(for: .seconds(60)), trace.all)
        }
        #expect(result == .stopped)
        #expect(
            trace == ["entry", "timers", "sources", "source", "timers", "sources", "waiting", "woken", "exit"]
        )
    }

    @Test("R13: a stop in the entry observer returns stopped before the first turn, with an exit")
    func stopAtEntry() async {
        let (result, trace) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            loop.add(LoopObserver(activities: .entry) { _, _ in loop.stop() })
            occupy(loop)
            return (loop.run(for: .seconds(60)), trace.all)
        }
        #expect(result == .stopped)
        #expect(trace == ["entry", "exit"])
    }

    @Test("R17: the order of precedence is handledSource, timedOut, stopped, finished")
    func precedence() async {
        let results = await onLoopThread { loop in
            let source = EventSource { source in
                loop.stop()
                source.invalidate()
            }
            loop.add(source)
            source.signal()
            let handled = loop.run(for: .zero, returnAfterSourceHandled: true)

            loop.perform { loop.stop() }
            let timedOut = loop.run(for: .zero)

            loop.perform { loop.stop() }
            let stopped = loop.run(for: .seconds(60))

            let last = occupy(loop)
            loop.perform { last.invalidate() }
            loop.perform(wake: true) {}
            let finished = loop.run(for: .seconds(60))
            return [handled, timedOut, stopped, finished]
        }
        #expect(results == [.handledSource, .timedOut, .stopped, .finished])
    }

    @Test("R18: a timeout of zero or less makes one pass without sleeping", arguments: [Duration.zero, .seconds(-1)])
    func onePass(timeout: Duration) async {
        let (result, trace) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            occupy(loop)
            return (loop.run(for: timeout), trace.all)
        }
        #expect(result == .timedOut)
        #expect(trace == ["entry", "timers", "sources", "exit"])
    }

    @Test("R18: a huge timeout never expires")
    func hugeTimeout() async {
        let result = await onLoopThread { loop in
            occupy(loop)
            loop.add(EventTimer(after: .milliseconds(1)) { _ in loop.stop() })
            return loop.run(for: .seconds(Int64.max))
        }
        #expect(result == .stopped)
    }

    @Test("R19: a timer or a block does not count as a handled source; a source0 does")
    func whatCountsAsSource() async {
        let (without, with, fired) = await onLoopThread { loop in
            let fired = Trace()
            loop.add(EventTimer(at: .now) { _ in fired.note("timer") })
            loop.perform { fired.note("block") }
            let source = occupy(loop)
            let without = loop.run(for: .milliseconds(2), returnAfterSourceHandled: true)
            source.signal()
            return (without, loop.run(for: .seconds(60), returnAfterSourceHandled: true), fired.all)
        }
        #expect(without == .timedOut)
        #expect(with == .handledSource)
        #expect(fired.sorted() == ["block", "timer"])
    }

    @Test("R20: a mode that held only a block runs it and then sleeps its full timeout")
    func blockOnlyMode() async {
        let (result, trace, time) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            loop.perform(wake: false) { trace.note("block") }
            let start = MonotonicInstant.now
            return (loop.run(for: .milliseconds(20)), trace.all, elapsed(since: start))
        }
        #expect(result == .timedOut)
        #expect(trace == ["entry", "timers", "sources", "block", "waiting", "woken", "exit"])
        #expect(time >= .milliseconds(20))
    }

    @Test("R21: run() continues until its mode is finished")
    func runUntilFinished() async {
        let count = await onLoopThread { loop in
            let count = Counter()
            loop.add(
                EventTimer(every: .milliseconds(1)) { timer in
                    if count.increment() == 3 { timer.invalidate() }
                }
            )
            loop.run()
            return count.value
        }
        #expect(count == 3)
    }

    @Test("A run's deadline applies while work keeps coming")
    func deadlineUnderLoad() async {
        let result = await onLoopThread { loop in
            let source = EventSource { $0.signal() }
            loop.add(source)
            source.signal()
            return loop.run(for: .milliseconds(5))
        }
        #expect(result == .timedOut)
    }
}
