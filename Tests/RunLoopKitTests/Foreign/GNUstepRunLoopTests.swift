import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// The cases of GNUstep base's NSRunLoop folder, counted in the order of its checks.
@Suite(.timeLimit(.minutes(10)))
struct GNUstepRunLoopTests {
    @Test(
        "R58: a worker thread that runs its own loop gives the main queue five blocks, and all of them run",
        .stands(for: "GNUstep dispatch.1")
    )
    func mainQueueFromWorker() throws {
        #expect(try Fixture.run("RunLoopFixture", "foreign increments").lines == ["stopped after 5"])
    }

    @Test(
        "R12: a thread has a loop without creating one; before it runs there is no current mode",
        .stands(for: "GNUstep general.1", "GNUstep general.2")
    )
    func beforeRunning() async {
        let (loop, mode) = await onLoopThread { loop in (EventRunLoop.current === loop, loop.currentMode) }
        #expect(loop)
        #expect(mode == nil)
    }

    @Test(
        "R17: a run without events takes its whole time",
        .stands(for: "GNUstep general.3", "GNUstep general.4")
    )
    func wholeTime() async {
        let (result, time) = await onLoopThread { loop in
            loop.add(EventTimer(after: .seconds(120)) { _ in })
            let start = MonotonicInstant.now
            return (loop.run(for: .milliseconds(20)), elapsed(since: start))
        }
        #expect(result == .timedOut)
        #expect(time >= .milliseconds(20))
    }

    @Test(
        "R18: a run until the distant past, or for no time, returns without sleeping",
        .stands(
            for: "GNUstep general.5",
            "GNUstep general.6",
            "GNUstep general.7",
            "GNUstep general.8",
            "GNUstep general.9",
            "GNUstep general.10"
        ),
        arguments: [Duration.zero, .seconds(-1), .seconds(Int64.min)]
    )
    func noTime(timeout: Duration) async {
        let (trace, result) = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            loop.add(EventTimer(after: .seconds(120)) { _ in })
            let result = loop.run(for: timeout)
            return (trace.all, result)
        }
        #expect(trace == ["entry", "timers", "sources", "exit"])
        #expect(result == .timedOut)
    }

    @Test("R18: a polling run fires a timer that is due", .stands(for: "GNUstep general.11"))
    func pollFires() async {
        let fires = await onLoopThread { loop in
            let fires = Counter()
            loop.add(EventTimer(after: .seconds(120)) { _ in fires.increment() })
            loop.add(EventTimer(at: MonotonicInstant.now.advanced(by: .milliseconds(-5))) { _ in fires.increment() })
            loop.run(for: .seconds(-1))
            return fires.value
        }
        #expect(fires == 1)
    }

    @Test(
        "R4: a custom mode waits for its timer, fires it, and is then finished",
        .stands(for: "GNUstep general.12", "GNUstep general.13", "GNUstep general.14")
    )
    func customMode() async {
        let (fires, result, time) = await onLoopThread { loop in
            let (fires, start) = (Counter(), MonotonicInstant.now)
            loop.add(EventTimer(at: start.advanced(by: .milliseconds(20))) { _ in fires.increment() }, to: "custom")
            let result = loop.run(mode: "custom", for: .seconds(60))
            return (fires.value, result, elapsed(since: start))
        }
        #expect(fires == 1)
        #expect(result == .finished)
        #expect(time >= .milliseconds(20))
    }

    @Test(
        "R9, R11: a loop without inputs and timers has no next date, and its run ends at once",
        .stands(for: "GNUstep thread.1", "GNUstep thread.3", "GNUstep thread.6", "GNUstep thread.9")
    )
    func empty() async {
        let (date, result, phase) = await onLoopThread { loop in
            (loop.nextTimerFireDate(), loop.run(for: .seconds(60)), loop.heartbeat.pulse.phase)
        }
        #expect(date == nil)
        #expect(result == .finished)
        #expect(phase == .idle)
    }

    @Test(
        "R9: a timer keeps a run waiting, and its fire date is the loop's next one",
        .stands(for: "GNUstep thread.2", "GNUstep thread.5", "GNUstep thread.8", "GNUstep thread.11")
    )
    func withTimer() async {
        let (isNext, result, time) = await onLoopThread { loop in
            let timer = EventTimer(after: .seconds(120)) { _ in }
            loop.add(timer)
            let start = MonotonicInstant.now
            let result = loop.run(for: .milliseconds(20))
            return (loop.nextTimerFireDate() == timer.nextFireDate, result, elapsed(since: start))
        }
        #expect(isNext)
        #expect(result == .timedOut)
        #expect(time >= .milliseconds(20))
    }

    @Test(
        "R9: an input keeps a run waiting, and gives no date",
        .stands(for: "GNUstep thread.4", "GNUstep thread.7", "GNUstep thread.10")
    )
    func withInput() async throws {
        let pipe = try Pipe()
        let (date, result, time) = await onLoopThread { loop in
            let source = DescriptorSource(descriptor: pipe.reader) { _, _ in }
            try? loop.add(source)
            let start = MonotonicInstant.now
            let result = loop.run(for: .milliseconds(20))
            source.invalidate()
            return (loop.nextTimerFireDate(), result, elapsed(since: start))
        }
        #expect(date == nil)
        #expect(result == .timedOut)
        #expect(time >= .milliseconds(20))
    }

    @Test(
        "R24: another thread's request is performed on a thread whose loop has only a timer",
        .stands(for: "GNUstep thread.12")
    )
    func performedElsewhere() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            loop.add(EventTimer(after: .seconds(120)) { _ in })
            let other = TestThread {
                waitUntil { loop.isWaiting }
                loop.perform {
                    trace.note("performed by the loop's thread: \(EventRunLoop.current === loop)")
                    loop.stop()
                }
            }
            loop.run(for: .seconds(60))
            other.join()
            return trace.all
        }
        #expect(trace == ["performed by the loop's thread: true"])
    }
}
