import LoopTestSupport
import RunLoopKit
import Testing

/// More of libuv's test-timer, test-timer-again and test-timer-from-check: when timers fire, and how often.
@Suite(.timeLimit(.minutes(10)))
struct LibuvTimerFireTests {
    @Test(
        "R21: each of two runs fires its timer and ends with it",
        .stands(for: "timer.timer_run_once")
    )
    func oneRunEach() async {
        let (fires, results) = await onLoopThread { loop in
            let fires = Counter()
            let results = [Duration.zero, .milliseconds(1)].map { delay in
                loop.add(EventTimer(after: delay) { _ in fires.increment() })
                return loop.run(for: .seconds(60))
            }
            return (fires.value, results + [loop.run(for: .seconds(60))])
        }
        #expect(fires == 2)
        #expect(results == [.finished, .finished, .finished])
    }

    @Test("R3: an invalidated timer is not accepted any more", .stands(for: "timer.timer_is_closing"))
    func addedAfterItsEnd() async {
        let (contained, result) = await onLoopThread { loop in
            let timer = EventTimer(after: .milliseconds(1)) { _ in }
            timer.invalidate()
            loop.add(timer)
            return (loop.contains(timer), loop.run(for: .seconds(60)))
        }
        #expect(!contained)
        #expect(result == .finished)
    }

    @Test("R41: no timer fires before its date", .stands(for: "timer.timer_early_check"))
    func notEarly() async {
        let early = await onLoopThread { loop in
            let early = Counter()
            for delay in 1...10 {
                let date = MonotonicInstant.now.advanced(by: .microseconds(delay * 700))
                loop.add(EventTimer(at: date) { _ in if MonotonicInstant.now < date { early.increment() } })
            }
            loop.run(for: .seconds(60))
            return early.value
        }
        #expect(early == 0)
    }

    @Test(
        "R44: a repeating timer that is two intervals late fires once in that turn, waiting or polling",
        .stands(for: "timer.timer_no_double_call_once", "timer.timer_no_double_call_nowait"),
        arguments: [Duration.seconds(60), .zero]
    )
    func noDoubleCall(timeout: Duration) async {
        let (fires, isLater) = await onLoopThread { loop in
            let fires = Counter()
            let interval = Duration.seconds(10)
            let date = MonotonicInstant.now.advanced(by: .seconds(-25))
            let timer = EventTimer(at: date, every: interval) { _ in
                fires.increment()
                loop.stop()
            }
            loop.add(timer)
            loop.run(for: timeout)
            return (fires.value, timer.nextFireDate == date.advanced(by: interval * 3))
        }
        #expect(fires == 1)
        #expect(isLater)
    }

    @Test(
        "R45: a timer that another one postpones at each fire does not fire until that one has ended",
        .stands(for: "timer_again.timer_again")
    )
    func pushedAhead() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let pushed = EventTimer(every: .seconds(20)) { timer in
                trace.note("pushed")
                timer.invalidate()
            }
            loop.add(pushed)
            loop.add(
                EventTimer(every: .milliseconds(1)) { timer in
                    trace.note("pushes")
                    pushed.nextFireDate = .now.advanced(by: .seconds(20))
                    guard trace.all.count == 10 else { return }
                    timer.invalidate()
                    pushed.nextFireDate = .now.advanced(by: .milliseconds(1))
                }
            )
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == Array(repeating: "pushes", count: 10) + ["pushed"])
    }

    @Test(
        "R43: a due timer that an observer moves does not fire in this turn, but after the next sleep",
        .stands(for: "timer_from_check.timer_from_check")
    )
    func movedByObserver() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let timer = EventTimer(after: .milliseconds(5)) { _ in trace.note("timer") }
            loop.add(timer)
            loop.add(
                LoopObserver(activities: .afterWaiting, repeats: false) { _, _ in
                    trace.note("woken")
                    timer.nextFireDate = .now.advanced(by: .seconds(60))
                    loop.add(
                        LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                            trace.note("waiting")
                            timer.nextFireDate = .now.advanced(by: .milliseconds(1))
                        }
                    )
                }
            )
            loop.run()
            return trace.all
        }
        #expect(trace == ["woken", "waiting", "timer"])
    }
}
