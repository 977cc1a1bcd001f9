import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of macios' CFRunLoop and NSTimer tests.
@Suite(.timeLimit(.minutes(10)))
struct MaciosTests {
    @Test(
        "R5: the main loop lists its modes, has no current one before it runs, and can run the first one listed",
        .stands(for: "macios RunLoopTest.AllModes", "macios RunLoopTest.CurrentMode", "macios RunLoopTest.RunInMode")
    )
    func mainModes() throws {
        let run = try Fixture.run("RunLoopFixture", "foreign main-modes")
        #expect(run.lines == ["current: none", "default: timedOut", "default: timedOut"])
    }

    @Test(
        "R41: a timer created on one thread and added on another fires there, twice, and ends there",
        .stands(for: "macios TimerTest.Bug17793", "macios TimerTest.Bug2443")
    )
    func madeElsewhere() async {
        let fires = Counter()
        let timer = EventTimer(every: .milliseconds(2)) { timer in
            if fires.increment() == 2 { timer.invalidate() }
        }
        let result = await onLoopThread { loop in
            loop.add(timer)
            return loop.run(for: .seconds(60))
        }
        #expect(fires.value == 2)
        #expect(result == .finished)
    }

    @Test("The callback gets the timer that fires", .stands(for: "macios TimerTest.CreateTimer_NewSignature"))
    func passedItself() async {
        let passed = Box<EventTimer?>(nil)
        let timer = EventTimer(after: .milliseconds(2)) { passed.value = $0 }
        _ = await onLoopThread { loop in
            loop.add(timer)
            return loop.run(for: .seconds(60))
        }
        #expect(passed.value === timer)
    }
}
