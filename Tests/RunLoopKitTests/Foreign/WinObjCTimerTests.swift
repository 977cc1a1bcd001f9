import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of WinObjC's NSTimer suite.
@Suite(.timeLimit(.minutes(10)))
struct WinObjCTimerTests {
    @Test(
        "R42: an interval is never negative, whatever was requested",
        .stands(for: "NSTimer.NegativeTimeInterval"),
        arguments: [Duration.seconds(-5), .zero]
    )
    func negativeInterval(interval: Duration) {
        let timer = EventTimer(every: interval) { _ in }
        #expect(timer.interval == .zero)
        #expect(!timer.repeats)
    }

    @Test(
        "R42: a one-shot is valid until it has fired",
        .stands(for: "NSTimer.ScheduledTimerWithTimeInterval")
    )
    func oneShot() async {
        let (before, fires, after) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(after: .milliseconds(5)) { _ in fires.increment() }
            loop.add(timer)
            let before = timer.isValid
            loop.run(for: .seconds(60))
            return (before, fires.value, timer.isValid)
        }
        #expect(before)
        #expect(fires == 1)
        #expect(!after)
    }

    @Test(
        "R44: a repeating timer is valid after five fires, until it is ended outside its callout",
        .stands(for: "NSTimer.ScheduledTimerWithTimeIntervalRepeat")
    )
    func repeating() async {
        let (fires, before, after) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(every: .milliseconds(2)) { _ in if fires.increment() == 5 { loop.stop() } }
            loop.add(timer)
            loop.run(for: .seconds(60))
            let before = timer.isValid
            timer.invalidate()
            return (fires.value, before, timer.isValid)
        }
        #expect(fires == 5)
        #expect(before)
        #expect(!after)
    }

    @Test(
        "R47: firing a one-shot by hand, long before its date, is its only fire",
        .stands(for: "NSTimer.ScheduledTimerWithTimeIntervalFireOnce")
    )
    func fireOnce() async {
        let (fires, isValid, result) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(after: .seconds(60)) { _ in fires.increment() }
            loop.add(timer)
            timer.fire()
            return (fires.value, timer.isValid, loop.run(for: .seconds(60)))
        }
        #expect(fires == 1)
        #expect(!isValid)
        #expect(result == .finished)
    }

    @Test(
        "R47: a repeating timer that has fired five times can also be fired by hand, and stays valid",
        .stands(for: "NSTimer.ScheduledTimerWithTimeIntervalFireRepeat")
    )
    func fireRepeating() async {
        let (fires, isValid, after) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(every: .milliseconds(2)) { _ in if fires.increment() == 5 { loop.stop() } }
            loop.add(timer)
            loop.run(for: .seconds(60))
            timer.fire()
            let isValid = timer.isValid
            timer.invalidate()
            return (fires.value, isValid, timer.isValid)
        }
        #expect(fires == 6)
        #expect(isValid)
        #expect(!after)
    }

    @Test(
        "R48: a timer keeps what its callback needs until it fires, and no longer",
        .stands(
            for: "NSTimer.ScheduledTimerWithTimeIntervalWithInvocation",
            "PyObjC TestNSTimer.testPythonLeakage"
        )
    )
    func argument() async {
        let (seen, freed) = await onLoopThread { loop in
            let seen = Trace()
            let witness: WeakReference<Box<String>>
            do {
                let argument = Box("argument")
                witness = WeakReference(argument)
                loop.add(EventTimer(after: .milliseconds(5)) { _ in seen.note(argument.value) })
            }
            seen.note(witness.object == nil ? "lost" : "kept")
            loop.run(for: .seconds(60))
            return (seen.all, witness.object == nil)
        }
        #expect(seen == ["kept", "argument"])
        #expect(freed)
    }
}
