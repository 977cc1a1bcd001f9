import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R17: "stopped (mode)".
@Suite(.timeLimit(.minutes(10)))
struct StopModeTests {
    @Test("R17: a stop of a mode ends its run, also from another thread, and no other")
    func stops() async {
        let results = await onLoopThread { loop in
            occupy(loop)
            occupy(loop, "other")
            loop.perform { loop.stop(mode: "other") }
            let passedOver = loop.run(for: .nanoseconds(1))
            let stopper = TestThread {
                waitUntil { loop.isWaiting }
                loop.stop(mode: .default)
            }
            let stopped = loop.run(mode: .default)
            stopper.join()
            return [passedOver, stopped]
        }
        #expect(results == [.timedOut, .stopped])
    }

    @Test("R17, R23: an outer run is stopped when its nested runs are over; these are not stopped")
    func outer() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            occupy(loop, "inner")
            // In an observer that runs directly before the sleep: the nested run consumes the wake-up that was meant for the
            // outer one.
            loop.add(
                LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                    loop.stop(mode: .default)
                    trace.note("inner \(loop.run(mode: "inner", for: .milliseconds(1)))")
                }
            )
            trace.note("outer \(loop.run(mode: .default))")
            return trace.all
        }
        #expect(trace == ["inner timedOut", "outer stopped"])
    }

    @Test(
        "R17, R23: of two runs of one mode the innermost is stopped; it does not take a stop of the outer one"
    )
    func sameMode() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.perform {
                loop.perform { loop.stop(mode: .default) }
                trace.note("inner \(loop.run(mode: .default))")
                loop.stop(mode: .default)
                trace.note("inner \(loop.run(for: .zero))")
            }
            trace.note("outer \(loop.run(mode: .default))")
            return trace.all
        }
        #expect(trace == ["inner stopped", "inner timedOut", "outer stopped"])
    }

    @Test("R17, R23: another thread's stop that a nested run did not take ends the outer run; the loop's own does not")
    func late() async {
        let results = await onLoopThread { loop in
            occupy(loop)
            func nested(for time: Duration, _ stop: @escaping @Sendable () -> Void) -> [EventRunLoop.RunResult] {
                let inner = Box<EventRunLoop.RunResult?>(nil)
                loop.perform {
                    loop.perform(stop)
                    // The turn that sees the stop has also timed out, and that has priority (R17).
                    inner.value = loop.run(for: .zero)
                }
                return [loop.run(for: time), inner.value ?? .finished]
            }
            let stopped = nested(for: .seconds(60)) { TestThread { loop.stop(mode: .default) }.join() }
            return stopped + nested(for: .milliseconds(200)) { loop.stop(mode: .default) }
        }
        #expect(results == [.stopped, .timedOut, .timedOut, .timedOut])
    }

    @Test("R13, R22: a stop of a mode that does not run is not remembered; one in the entry observer counts")
    func notRunning() async {
        let results = await onLoopThread { loop in
            occupy(loop)
            loop.stop(mode: .default)
            loop.stop(mode: "no such mode")
            let ignored = loop.run(for: .nanoseconds(1))
            loop.add(LoopObserver(activities: .entry, repeats: false) { _, _ in loop.stop(mode: .default) })
            return [ignored, loop.run(for: .seconds(60))]
        }
        #expect(results == [.timedOut, .stopped])
    }

    @Test("R17, R22: a nested run that stops its own mode after its wait leaves no wake-up for the outer run")
    func noWakeUpForOuterRun() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.add(EventTimer(at: .now) { _ in loop.stop(mode: "inner") }, to: "inner")
            occupy(loop, "inner")
            loop.add(
                LoopObserver(activities: .beforeSources, repeats: false) { _, _ in
                    trace.note("inner \(loop.run(mode: "inner", for: .seconds(60)))")
                }
            )
            observe(loop, in: trace)
            loop.run(for: .milliseconds(5))
            return trace.all
        }
        // One turn, as below.
        #expect(trace == ["entry", "timers", "inner stopped", "sources", "waiting", "woken", "exit"])
    }

    @Test("R22: a stop of a mode while nothing runs leaves no wake-up behind")
    func noWakeUp() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            observe(loop, in: trace)
            loop.stop(mode: .default)
            loop.run(for: .milliseconds(5))
            return trace.all
        }
        // One turn: its sleep did not end before the run's timeout.
        #expect(trace == ["entry", "timers", "sources", "waiting", "woken", "exit"])
    }
}
