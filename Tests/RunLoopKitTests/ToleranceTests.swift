import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R46. Wake-ups are counted, not timed.
@Suite(
    .timeLimit(.minutes(10)),
    .repeatedWhenLate(by: .milliseconds(20))
)
struct ToleranceTests {
    @Test("R46: one wake-up serves all timers whose windows overlap, at the first date that none can pass")
    func coalesced() async {
        let (wakeUps, trace, early, sleepsAfter) = await onLoopThread { loop in
            let (wakeUps, trace, early, sleepsAfter) = (Counter(), Trace(), Counter(), Box<Duration?>(nil))
            let start = MonotonicInstant.now
            // The loop must sleep before the first date: there is more time for that than the suite's tolerated lateness.
            for (date, tolerance) in [(200, 600), (100, 500), (400, 10_000), (500, 0), (300, 200)] {
                let timer = EventTimer(at: start.advanced(by: .milliseconds(date))) { _ in
                    trace.note("\(date)")
                    if elapsed(since: start) < .milliseconds(500) { early.increment() }
                }
                timer.tolerance = .milliseconds(tolerance)
                loop.add(timer)
            }
            loop.add(LoopObserver(activities: .afterWaiting) { _, _ in wakeUps.increment() })
            let observer = LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                sleepsAfter.value = elapsed(since: start)
            }
            loop.add(observer)
            loop.run()
            return (wakeUps.value, trace.all, early.value, sleepsAfter.value)
        }
        LatenessWitness.note(sleepsAfter ?? .zero)
        #expect(wakeUps == 1)
        #expect(trace == ["100", "200", "300", "400", "500"])
        #expect(early == 0)
    }

    @Test("R46: a repeating timer's tolerance is at most half its interval, and never less than zero")
    func capped() {
        let repeating = EventTimer(every: .milliseconds(10)) { _ in }
        repeating.tolerance = .seconds(1)
        #expect(repeating.tolerance == .milliseconds(5))
        repeating.tolerance = .milliseconds(2)
        #expect(repeating.tolerance == .milliseconds(2))
        repeating.tolerance = .seconds(-1)
        #expect(repeating.tolerance == .zero)
        let oneShot = EventTimer(after: .milliseconds(10)) { _ in }
        #expect(oneShot.tolerance == .zero)
        oneShot.tolerance = .seconds(Int64.max)
        #expect(oneShot.tolerance >= .seconds(3600))
    }

    @Test("R46: a timer whose date was reached during a sleep fires when something else wakes the loop")
    func wokenAnyway() async {
        let (result, sleptOn) = await onLoopThread { loop in
            let date = MonotonicInstant.now.advanced(by: .milliseconds(700))
            let timer = EventTimer(at: date) { _ in loop.stop() }
            timer.tolerance = .seconds(3600)
            loop.add(timer)
            let sleptOn = Box(false)
            let waker = TestThread {
                // If the date passes before the loop sleeps, the machine is late.
                waitUntil { loop.isWaiting || MonotonicInstant.now > date }
                let isInTime = loop.isWaiting && MonotonicInstant.now < date
                // Long enough for the loop to wake, if it did.
                waitUntil { elapsed(since: date) > .milliseconds(50) }
                sleptOn.value = isInTime && loop.isWaiting
                loop.wakeUp()
            }
            let result = loop.run(for: .seconds(60))
            waker.join()
            return (result, sleptOn.value)
        }
        #expect(result == .stopped)
        #expect(sleptOn)
    }

    @Test("R46: a loop does not sleep if a timer's date has been reached")
    func dueBeforeSleep() async {
        let result = await onLoopThread { loop in
            let timer = EventTimer(at: .now) { _ in loop.stop() }
            timer.tolerance = .seconds(3600)
            loop.add(timer)
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R27, R46: a tolerance takes effect at once, also on a sleeping loop")
    func setWhileAsleep() async {
        let result = await onLoopThread { loop in
            let date = MonotonicInstant.now.advanced(by: .seconds(1))
            let timer = EventTimer(at: date) { _ in loop.stop() }
            timer.tolerance = .seconds(3600)
            loop.add(timer)
            let setter = TestThread {
                waitUntil { loop.isWaiting || MonotonicInstant.now > date }
                timer.tolerance = .zero
            }
            let result = loop.run(for: .seconds(60))
            setter.join()
            return result
        }
        #expect(result == .stopped)
    }

    @Test("R44, R46: tolerance does not move the grid, whenever it is set")
    func grid() async {
        let offsets = await onLoopThread { loop in
            let start = MonotonicInstant.now
            let dates = Box<[MonotonicInstant]>([])
            let timer = EventTimer(at: start, every: .milliseconds(4)) { timer in
                dates.value.append(timer.nextFireDate)
                timer.tolerance = .milliseconds(dates.value.count % 3)
                if dates.value.count == 6 { loop.stop() }
            }
            loop.add(timer)
            loop.run()
            return dates.value.map { start.duration(to: $0).components.attoseconds / 1_000_000_000 }
        }
        #expect(offsets.count == 6)
        #expect(offsets.allSatisfy { $0 % 4_000_000 == 0 }, "\(offsets)")
    }

    @Test("R46: the next fire date that a loop returns is the date, not the end of the window")
    func nextFireDate() async {
        let same = await onLoopThread { loop in
            let timer = EventTimer(after: .seconds(60)) { _ in }
            timer.tolerance = .seconds(30)
            loop.add(timer)
            return loop.nextTimerFireDate() == timer.nextFireDate
        }
        #expect(same)
    }
}
