import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R41 to R50. In real time, so only order and lower bounds are tested.
@Suite(.timeLimit(.minutes(10)))
struct TimerTests {
    @Test("R41: timers due together fire by date, ties by order, then insertion")
    func order() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let now = MonotonicInstant.now
            let past = now.advanced(by: .seconds(-1))
            let timers: [(MonotonicInstant, Int, String)] = [
                (now, 1, "d"), (now, 0, "b"), (now, 0, "c"), (past, 9, "a"),
                (now.advanced(by: .seconds(60)), -1, "late"),
            ]
            for (date, order, name) in timers {
                loop.add(EventTimer(at: date, order: order) { _ in trace.note(name) })
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["a", "b", "c", "d"])
    }

    @Test("R41: a timer in two modes fires once, in whichever runs; it is on one loop at a time")
    func modes() async {
        let (fires, otherTook) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(at: .now, every: .seconds(60)) { _ in fires.increment() }
            loop.add(timer)
            loop.add(timer, to: "other")
            let otherTook = Box(true)
            TestThread {
                EventRunLoop.current.add(timer)
                otherTook.value = EventRunLoop.current.contains(timer)
            }.join()
            loop.run(mode: "other", for: .zero)
            loop.run(for: .zero)
            return (fires.value, otherTook.value)
        }
        #expect(fires == 1)
        #expect(!otherTook)
    }

    @Test("R42: an interval of zero or less makes a one-shot, valid in its callout and not afterwards")
    func oneShot() async {
        let (trace, valid) = await onLoopThread { loop in
            let trace = Trace()
            let timer = EventTimer(at: .now, every: .seconds(-1)) { timer in
                trace.note(timer.isValid ? "valid" : "invalid")
            }
            loop.add(timer)
            loop.run(for: .seconds(60))
            return (trace.all, timer.isValid)
        }
        #expect(trace == ["valid"])
        #expect(!valid)
    }

    @Test("R42: an interval that is not a number is a typed error", arguments: [Double.nan, .infinity, -.infinity])
    func notANumber(seconds: Double) {
        #expect { try EventTimer(everySeconds: seconds) { _ in } } throws: { error in
            (error as? RunLoopError)?.code == .invalidInterval
        }
    }

    @Test("An interval in seconds can have any size", arguments: [1e300, 9.3e9, 1e-10, 0, -1e300])
    func anySeconds(seconds: Double) throws {
        let timer = try EventTimer(everySeconds: seconds) { _ in }
        #expect(timer.repeats == (seconds > 0))
    }

    @Test("R43: a timer invalidated, moved or removed by an earlier one of the same pass does not fire in it")
    func rechecked() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let now = MonotonicInstant.now
            let make: (String) -> EventTimer = { name in EventTimer(at: now, order: 1) { _ in trace.note(name) } }
            let (invalid, moved, removed, kept) = (make("invalid"), make("moved"), make("removed"), make("kept"))
            for timer in [invalid, moved, removed, kept] { loop.add(timer) }
            loop.add(
                EventTimer(at: now) { _ in
                    invalid.invalidate()
                    moved.nextFireDate = .now.advanced(by: .seconds(60))
                    loop.remove(removed)
                    loop.add(EventTimer(at: now) { _ in trace.note("added in the pass") })
                }
            )
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["kept"])
    }

    @Test("R44: missed fires count as one, and the timer stays on its grid")
    func grid() async {
        let offsets = await onLoopThread { loop in
            let interval: Duration = .milliseconds(10)
            let start = MonotonicInstant.now.advanced(by: interval)
            let dates = Box<[MonotonicInstant]>([])
            loop.add(
                EventTimer(at: start, every: interval) { timer in
                    dates.value.append(timer.nextFireDate)
                    if dates.value.count == 1 { usleep(35_000) }
                    if dates.value.count == 3 { loop.stop() }
                }
            )
            loop.run()
            return dates.value.map { Int64($0.nanoseconds) - Int64(start.nanoseconds) }
        }
        #expect(offsets.allSatisfy { $0 % 10_000_000 == 0 }, "\(offsets)")
        // Served at 0, then blocked until 35 or later: the next date on the grid is 40 or later, not 10.
        #expect(
            offsets.count == 3 && offsets[0] == 0 && offsets[1] >= 40_000_000 && offsets[2] > offsets[1],
            "\(offsets)"
        )
    }

    @Test("R45: a date set in the callout applies if later than the one served, and moves the grid")
    func movedInCallout() async {
        let (start, second, third) = await onLoopThread { loop in
            let start = MonotonicInstant.now
            let dates = Box<[MonotonicInstant]>([])
            loop.add(
                EventTimer(at: start, every: .milliseconds(10)) { timer in
                    dates.value.append(timer.nextFireDate)
                    switch dates.value.count {
                    case 1: timer.nextFireDate = start.advanced(by: .milliseconds(3))
                    case 2: timer.nextFireDate = start.advanced(by: .milliseconds(-5))
                    default: loop.stop()
                    }
                }
            )
            loop.run()
            return (start, dates.value[1], dates.value[2])
        }
        #expect(second == start.advanced(by: .milliseconds(3)))
        let phase = Int64(third.nanoseconds) - Int64(second.nanoseconds)
        #expect(phase > 0 && phase % 10_000_000 == 0)
    }

    @Test("R45: a date set in a one-shot's callout does not keep it alive")
    func oneShotMoved() async {
        let fires = await onLoopThread { loop in
            let fires = Counter()
            loop.add(
                EventTimer(at: .now) { timer in
                    fires.increment()
                    timer.nextFireDate = .now
                }
            )
            occupy(loop)
            loop.run(for: .milliseconds(5))
            return fires.value
        }
        #expect(fires == 1)
    }

    @Test("R47: fire calls out even if not due; it ends a one-shot and does not change a grid")
    func fireByHand() async {
        let (trace, unmoved, oneShotIsValid) = await onLoopThread { loop in
            let trace = Trace()
            let later = MonotonicInstant.now.advanced(by: .seconds(60))
            let repeating = EventTimer(at: later, every: .seconds(1)) { _ in trace.note("repeating") }
            let oneShot = EventTimer(at: later) { _ in trace.note("one-shot") }
            loop.add(repeating)
            loop.add(oneShot)
            repeating.fire()
            oneShot.fire()
            oneShot.fire()
            return (trace.all, repeating.nextFireDate == later && loop.nextTimerFireDate() == later, oneShot.isValid)
        }
        #expect(trace == ["repeating", "one-shot"])
        #expect(unmoved)
        #expect(!oneShotIsValid)
    }

    @Test("R48: the first fire comes after one interval; the closure is freed when the timer ends")
    func firstFire() async {
        let (early, freed) = await onLoopThread { loop in
            let witness = Box<WeakTrace?>(nil)
            let start = MonotonicInstant.now
            let early = Box(false)
            do {
                let held = Trace()
                witness.value = WeakTrace(held)
                loop.add(
                    EventTimer(every: .milliseconds(5)) { timer in
                        held.note("fired")
                        early.value = elapsed(since: start) < .milliseconds(5)
                        timer.invalidate()
                    }
                )
            }
            loop.run()
            return (early.value, witness.value?.trace == nil)
        }
        #expect(!early)
        #expect(freed)
    }

    @Test("R50: catching up after a very long absence takes constant time")
    func catchUp() async {
        let fires = await onLoopThread { loop in
            let fires = Counter()
            // About 10^13 fires are missed; individually they would take days.
            let timer = EventTimer(at: MonotonicInstant(nanoseconds: 0), every: .nanoseconds(1)) { timer in
                if fires.increment() == 2 { timer.invalidate() }
            }
            loop.add(timer)
            loop.run()
            return fires.value
        }
        #expect(fires == 2)
    }

    @Test("A timer whose date is never reached does not trap")
    func farAway() async {
        let result = await onLoopThread { loop in
            loop.add(EventTimer(at: .distantFuture, every: .seconds(Int64.max)) { _ in })
            loop.add(EventTimer(after: .seconds(Int64.max)) { _ in })
            return loop.run(for: .milliseconds(1))
        }
        #expect(result == .timedOut)
    }

    @Test("No timer fires early, and none of a thousand is forgotten")
    func manyTimers() async {
        let (early, fired) = await onLoopThread { loop in
            let early = Counter()
            let fired = Counter()
            var random = SplitMix64.ofThisRun()
            for _ in 0..<1000 {
                let date = MonotonicInstant.now.advanced(by: .microseconds(Int.random(in: 0..<20_000, using: &random)))
                loop.add(
                    EventTimer(at: date) { _ in
                        if MonotonicInstant.now < date { early.increment() }
                        fired.increment()
                    }
                )
            }
            loop.run()
            return (early.value, fired.value)
        }
        #expect(early == 0)
        #expect(fired == 1000)
    }
}
