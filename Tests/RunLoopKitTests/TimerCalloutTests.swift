import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// What a timer's callout may do to its own timer and to others (R23, R41 to R48).
@Suite(.timeLimit(.minutes(10)))
struct TimerCalloutTests {
    @Test("R23, R43: a nested run fires the rest of the pass and the timers that became due since, in order")
    func nestedRun() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let now = MonotonicInstant.now
            let note: @Sendable (String, Duration) -> EventTimer = { name, age in
                EventTimer(at: now.advanced(by: .zero - age)) { _ in trace.note(name) }
            }
            loop.add(
                EventTimer(at: now.advanced(by: .seconds(-9))) { _ in
                    loop.add(note("added", .seconds(6)))
                    trace.note("nested begins")
                    loop.run(for: .zero)
                    trace.note("nested ends")
                    loop.add(note("next turn", .seconds(8)))
                }
            )
            for (name, age) in [("first", 7), ("second", 5)] { loop.add(note(name, .seconds(age))) }
            loop.run(for: .zero)
            trace.note("turn ends")
            loop.run(for: .zero)
            return trace.all
        }
        #expect(
            trace == ["nested begins", "first", "added", "second", "nested ends", "turn ends", "next turn"]
        )
    }

    @Test(
        "R23, R43: a due timer removed from the mode during the pass still fires in it, but in no nested run",
        arguments: [false, true]
    )
    func leftWhileDue(runsNested: Bool) async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let now = MonotonicInstant.now
            let leaving = EventTimer(at: now) { _ in trace.note("leaving") }
            loop.add(
                EventTimer(at: now.advanced(by: .seconds(-9))) { _ in
                    loop.remove(leaving)
                    if runsNested { loop.run(for: .zero) }
                    trace.note("first")
                }
            )
            loop.add(leaving)
            loop.add(leaving, to: "other")
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == (runsNested ? ["first"] : ["first", "leaving"]))
    }

    @Test("R43, R48: a due timer that only the pass still holds, because it has left, is released outside all locks")
    func releasedByPass() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            func makeLeaving() -> EventTimer {
                let held = LoopUserInDeinit(of: loop, trace)
                return EventTimer(at: .now) { _ in withExtendedLifetime(held) {} }
            }
            let leaving = Box<EventTimer?>(makeLeaving())
            @Sendable func leave() {
                guard let timer = leaving.value else { return }
                leaving.value = nil
                loop.remove(timer)
                loop.remove(timer, from: "other")
            }
            loop.add(
                EventTimer(at: MonotonicInstant(nanoseconds: 0)) { _ in
                    leave()
                    trace.note("left")
                    loop.run(for: .zero)
                    trace.note("nested run over")
                }
            )
            if let timer = leaving.value {
                loop.add(timer)
                loop.add(timer, to: "other")
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["left", "freed, modes: [\"default\", \"other\"]", "nested run over"])
    }

    @Test("R23, R43: a nested run of another mode leaves the pass alone")
    func nestedElsewhere() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let now = MonotonicInstant.now
            loop.add(
                EventTimer(at: now) { _ in
                    loop.add(EventTimer(at: now) { _ in trace.note("other mode") }, to: "other")
                    loop.run(mode: "other", for: .zero)
                    trace.note("first")
                }
            )
            loop.add(EventTimer(at: now) { _ in trace.note("second") })
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["other mode", "first", "second"])
    }

    @Test("R23, R47: fire in a timer's own callout does nothing")
    func fireInCallout() async {
        let fires = await onLoopThread { loop in
            let fires = Counter()
            for interval: Duration in [.zero, .seconds(60)] {
                loop.add(
                    EventTimer(at: .now, every: interval) { timer in
                        fires.increment()
                        timer.fire()
                    }
                )
            }
            loop.run(for: .zero)
            return fires.value
        }
        #expect(fires == 2)
    }

    @Test("R42, R44: a timer removed and added again in its callout continues; a one-shot ends anyway")
    func addedAgain() async {
        let (fires, onGrid, oneShotIsThere) = await onLoopThread { loop in
            let fires = Counter()
            let start = MonotonicInstant.now
            let repeating = EventTimer(at: start, every: .milliseconds(2)) { timer in
                loop.remove(timer)
                loop.add(timer)
                if fires.increment() == 3 { loop.stop() }
            }
            let oneShot = EventTimer(at: start) { timer in
                loop.remove(timer)
                loop.add(timer, to: "other")
                loop.add(timer)
            }
            loop.add(repeating)
            loop.add(oneShot)
            loop.run()
            let phase = start.duration(to: repeating.nextFireDate).components.attoseconds % 2_000_000_000_000_000
            return (fires.value, phase == 0, loop.contains(oneShot) || loop.contains(oneShot, in: "other"))
        }
        #expect(fires == 3)
        #expect(onGrid)
        #expect(!oneShotIsThere)
    }

    @Test("R41, R45: a new date applies in all the timer's modes; of several set in a callout the last applies")
    func severalModes() async {
        let (dates, last) = await onLoopThread { loop in
            let timer = EventTimer(at: .distantFuture, every: .seconds(1)) { timer in
                for seconds in [500, 300, 400] {
                    timer.nextFireDate = timer.nextFireDate.advanced(by: .seconds(seconds))
                }
            }
            let modes: [EventRunLoop.Mode] = [.default, "second", "third"]
            for mode in modes { loop.add(timer, to: mode) }
            loop.remove(timer, from: .default)
            loop.add(timer)
            let start = MonotonicInstant.now
            timer.nextFireDate = start
            let dates = modes.map { loop.nextTimerFireDate(in: $0) == start }
            loop.run(mode: "third", for: .zero)
            let last = start.advanced(by: .seconds(1200))
            return (dates, modes.allSatisfy { loop.nextTimerFireDate(in: $0) == last })
        }
        #expect(dates == [true, true, true])
        #expect(last)
    }

    @Test("R23, R41: while a timer's callout runs in one mode, its other modes do not wait for it")
    func calledElsewhere() async {
        let (inCallout, after) = await onLoopThread { loop in
            let inCallout = Box<MonotonicInstant?>(nil)
            let timer = EventTimer(at: .now, every: .seconds(60)) { _ in
                inCallout.value = loop.nextTimerFireDate(in: "other")
            }
            loop.add(timer)
            loop.add(timer, to: "other")
            loop.run(for: .zero)
            return (inCallout.value, loop.nextTimerFireDate(in: "other") == timer.nextFireDate)
        }
        #expect(inCallout == nil)
        #expect(after)
    }

    @Test("R27, R47: a timer that another thread fires still fires at its date on a loop that fell asleep meanwhile")
    func firedElsewhere() async {
        let result = await onLoopThread { loop in
            let timer = EventTimer(at: .now.advanced(by: .seconds(1)), every: .seconds(60)) { _ in
                // On the other thread: until the loop sleeps without the timer.
                if EventRunLoop.current === loop { loop.stop() } else { waitUntil { loop.isWaiting } }
            }
            loop.add(timer)
            let began = Box(false)
            let firing = TestThread {
                began.value = true
                timer.fire()
            }
            waitUntil { began.value && loop.nextTimerFireDate() == nil }
            let result = loop.run(for: .seconds(20))
            firing.join()
            return result
        }
        #expect(result == .stopped)
    }

    @Test("R41: a timer that its callout moves to another loop fires there, even if that loop sleeps")
    func takenElsewhere() async {
        let onOther = await onLoopThread { loop in
            let other = Box<EventRunLoop?>(nil)
            let result = Box<EventRunLoop.RunResult?>(nil)
            let thread = TestThread {
                occupy(.current)
                other.value = .current
                result.value = EventRunLoop.current.run(for: .seconds(20))
            }
            waitUntil { other.value?.isWaiting ?? false }
            loop.add(
                EventTimer(at: .now, every: .milliseconds(1)) { timer in
                    guard EventRunLoop.current === loop else { return EventRunLoop.current.stop() }
                    loop.remove(timer)
                    let turn = other.value?.heartbeat.pulse.turn
                    other.value?.add(timer)
                    // It is not called there during its callout here, and does not keep that loop awake.
                    waitUntil { other.value.map { $0.heartbeat.pulse.turn != turn && $0.isWaiting } ?? false }
                }
            )
            loop.run(for: .seconds(20))
            thread.join()
            return result.value
        }
        #expect(onOther == .stopped)
    }

    @Test("R48: however a timer ends, its closure is freed, even if the timer is kept")
    func closures() async {
        let freed = await onLoopThread { loop in
            let ends: [(EventTimer, EventRunLoop) -> Void] = [
                { timer, loop in loop.run(for: .zero) },
                { timer, _ in timer.fire() },
                { timer, _ in timer.invalidate() },
                { timer, loop in
                    loop.remove(timer)
                    timer.invalidate()
                },
            ]
            return ends.map { end in
                let (timer, witness) = timerThatHoldsSomething()
                loop.add(timer)
                loop.add(timer, to: "other")
                end(timer, loop)
                return witness.trace == nil && !timer.isValid
            }
        }
        #expect(freed == [true, true, true, true])
    }

    @Test("R44, R50: a grid that ends beyond the clock's range leaves the timer at its end, valid")
    func endOfTime() async {
        let (date, valid) = await onLoopThread { loop in
            let timer = EventTimer(at: .now, every: .seconds(Int64.max)) { _ in }
            loop.add(timer)
            loop.run(for: .zero)
            timer.nextFireDate = .now
            loop.run(for: .zero)
            let near = timer.nextFireDate
            timer.fire()
            return (near, timer.isValid)
        }
        #expect(date > .now.advanced(by: .seconds(9_000_000_000)))
        #expect(valid)
    }

    @Test("R6, R42: one-shots in the common modes leave nothing recorded when they end")
    func commonOneShots() async {
        let (fires, left) = await onLoopThread { loop in
            let fires = Counter()
            loop.addCommonMode("second")
            let timers = (0..<100).map { _ in EventTimer(at: .now) { _ in fires.increment() } }
            for timer in timers { loop.add(timer, to: .common) }
            loop.run(for: .zero)
            return (fires.value, timers.filter { loop.contains($0, in: .common) }.count)
        }
        #expect(fires == 100)
        #expect(left == 0)
    }
}

private func timerThatHoldsSomething() -> (EventTimer, WeakTrace) {
    let held = Trace()
    return (EventTimer(at: .now) { _ in held.note("fired") }, WeakTrace(held))
}
