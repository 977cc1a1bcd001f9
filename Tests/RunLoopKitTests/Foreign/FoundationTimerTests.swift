import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of swift-corelibs-foundation's TestTimer.
@Suite(.timeLimit(.minutes(10)))
struct FoundationTimerTests {
    @Test(
        "R42: a timer keeps its initial date; the interval of a one-shot is zero; both kinds are valid",
        .stands(for: "TestTimer.test_timerInit")
    )
    func asMade() {
        let date = MonotonicInstant.now.advanced(by: .seconds(7))
        let oneShot = EventTimer(at: date) { _ in }
        let repeating = EventTimer(at: date, every: .milliseconds(300)) { _ in }
        #expect(oneShot.nextFireDate == date && repeating.nextFireDate == date)
        #expect(oneShot.interval == .zero && !oneShot.repeats)
        #expect(repeating.interval == .milliseconds(300) && repeating.repeats)
        #expect(oneShot.isValid && repeating.isValid)
    }

    @Test(
        "R42: a one-shot that invalidates itself in its callout fires once",
        .stands(for: "TestTimer.test_timerTickOnce")
    )
    func once() async {
        let (fires, result) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(after: .milliseconds(2)) { timer in
                fires.increment()
                timer.invalidate()
            }
            loop.add(timer)
            loop.add(timer)
            let result = loop.run(for: .seconds(60))
            return (fires.value, result)
        }
        #expect(fires == 1)
        #expect(result == .finished)
    }

    @Test(
        "R44: a repeating timer fires one interval apart, never sooner, until it is invalidated",
        .stands(for: "TestTimer.test_timerRepeats")
    )
    func threeTimes() async {
        let interval = Duration.milliseconds(5)
        let (start, dates) = await onLoopThread { loop in
            let (start, dates) = (MonotonicInstant.now, Box<[MonotonicInstant]>([]))
            loop.add(
                EventTimer(every: interval) { timer in
                    dates.value.append(.now)
                    if dates.value.count == 3 { timer.invalidate() }
                }
            )
            loop.run(for: .seconds(60))
            return (start, dates.value)
        }
        #expect(dates.count == 3)
        for (index, date) in dates.enumerated() { #expect(start.duration(to: date) >= interval * (index + 1)) }
    }

    @Test(
        "R42: a repeating timer is valid in its callout, invalid once ended there, and does not fire again",
        .stands(for: "TestTimer.test_timerInvalidate")
    )
    func endedInside() async {
        let (trace, result) = await onLoopThread { loop in
            let trace = Trace()
            loop.add(
                EventTimer(every: .milliseconds(2)) { timer in
                    trace.note("valid: \(timer.isValid)")
                    timer.invalidate()
                    trace.note("valid: \(timer.isValid)")
                }
            )
            let result = loop.run(for: .seconds(60))
            return (trace.all, result)
        }
        #expect(trace == ["valid: true", "valid: false"])
        #expect(result == .finished)
    }
}
