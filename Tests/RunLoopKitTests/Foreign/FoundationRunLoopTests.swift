import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of swift-corelibs-foundation's TestRunLoop.
@Suite(.timeLimit(.minutes(10)))
struct FoundationRunLoopTests {
    @Test(
        "R5, R7: the default mode and the common set have their own names; a mode is identified by its name",
        .stands(for: "TestRunLoop.test_constants")
    )
    func modeNames() {
        #expect(EventRunLoop.Mode.default.name == "default")
        #expect(EventRunLoop.Mode.common.name == "common")
        #expect(EventRunLoop.Mode.default == "default")
        #expect(EventRunLoop.Mode.default != .common)
    }

    @Test(
        "R1: a loop requested twice is the same, and the main thread's loop is the main loop",
        .stands(for: "TestRunLoop.test_runLoopInit")
    )
    func identity() async {
        let elsewhere = await onLoopThread { loop in
            [loop === EventRunLoop.current, EventRunLoop.main === EventRunLoop.main, loop === EventRunLoop.main]
        }
        #expect(elsewhere == [true, true, false])
        let onMain = await MainActor.run { EventRunLoop.current === EventRunLoop.main }
        #expect(onMain)
    }

    @Test(
        "R12: a timer's callout sees the mode that runs, and the run ends with its last timer",
        .stands(for: "TestRunLoop.test_runLoopRunMode")
    )
    func modeInCallout() async {
        let (mode, after, result) = await onLoopThread { loop in
            let mode = Box<EventRunLoop.Mode?>(nil)
            loop.add(EventTimer(after: .milliseconds(5)) { _ in mode.value = loop.currentMode })
            let result = loop.run(for: .seconds(60))
            return (mode.value, loop.currentMode, result)
        }
        #expect(mode == .default)
        #expect(after == nil)
        #expect(result == .finished)
    }

    @Test(
        "R41: a mode gives its earliest fire date, and none without a timer",
        .stands(for: "TestRunLoop.test_runLoopLimitDate")
    )
    func earliestFireDate() async {
        let (before, asked, date) = await onLoopThread { loop in
            let before = loop.nextTimerFireDate()
            let timer = EventTimer(after: .seconds(60)) { _ in }
            loop.add(EventTimer(after: .seconds(90)) { _ in })
            loop.add(timer)
            return (before, loop.nextTimerFireDate(), timer.nextFireDate)
        }
        #expect(before == nil)
        #expect(asked == date)
    }

    @Test(
        "R18: a run until a time in the past polls and never sleeps",
        .stands(for: "TestRunLoop.test_runLoopPoll")
    )
    func poll() async {
        let (trace, result) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            occupy(loop)
            return (trace, loop.run(for: .zero))
        }
        #expect(trace.all == ["entry", "timers", "sources", "exit"])
        #expect(result == .timedOut)
    }

    @Test(
        "R6: a timer added to the common modes fires in a run of one of them",
        .stands(for: "TestRunLoop.test_commonModes")
    )
    func commonTimer() async {
        let fires = await onLoopThread { loop in
            let fires = Counter()
            loop.addCommonMode("other")
            loop.add(EventTimer(after: .milliseconds(1)) { _ in fires.increment() }, to: .common)
            loop.run(mode: "other", for: .seconds(60))
            return fires.value
        }
        #expect(fires == 1)
    }

    @Test(
        "R33: a source knows its modes; adding twice counts once; its end removes it",
        .stands(for: "TestRunLoop.test_addingRemovingPorts")
    )
    func scheduling() async {
        let (trace, freed) = await onLoopThread { loop in
            let trace = Trace()
            let witness: WeakReference<EventSource>
            do {
                let source = EventSource(
                    onSchedule: { _, mode in trace.note("into \(mode)") },
                    onCancel: { _, mode in trace.note("out of \(mode)") },
                    { _ in }
                )
                witness = WeakReference(source)
                loop.add(source)
                loop.add(source)
                loop.add(source, to: "custom")
                loop.remove(source, from: "custom")
                loop.add(source, to: "custom")
                source.invalidate()
            }
            return (trace.all, witness.object == nil)
        }
        #expect(
            trace == [
                "into default", "into custom", "out of custom", "into custom", "out of default", "out of custom",
            ]
        )
        #expect(freed)
    }

    @Test(
        "R58: a run that returns after a source serves the main queue, twice; earlier work does not end it",
        .stands(for: "TestRunLoop.test_mainDispatchQueueCallout")
    )
    func mainQueueTwice() throws {
        let run = try Fixture.run("RunLoopFixture", "foreign main-queue-twice")
        #expect(run.lines == ["async 1", "handledSource", "async 2", "handledSource", "timer", "stopped"])
    }
}
