import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of Chromium's RunLoopTest and RunLoopDelegateTest that apply here.
@Suite(.timeLimit(.minutes(10)))
struct ChromiumRunLoopTests {
    @Test(
        "R22: an observer that stops the idle loop lets all posted blocks run first, and no later ones",
        .stands(for: "RunLoopTest.QuitWhenIdle", "RunLoopTest.QuitWhenIdleClosure")
    )
    func stopWhenIdle() async {
        let (trace, result) = await onLoopThread { loop in
            let (trace, tasks) = (Trace(), TaskList(on: loop))
            tasks.post {
                trace.note("asks for the end")
                tasks.stopWhenIdle()
            }
            tasks.post { trace.note("posted after") }
            tasks.postTomorrow { trace.note("tomorrow") }
            return (trace, loop.run(for: .seconds(60)))
        }
        #expect(trace.all == ["asks for the end", "posted after"])
        #expect(result == .stopped)
    }

    @Test(
        "R23: so does a nested run, which ends alone; the outer run's request applies to the outer run",
        .stands(for: "RunLoopTest.QuitWhenIdleNestedLoop")
    )
    func stopWhenIdleNested() async {
        let (trace, result) = await onLoopThread { loop in
            let (trace, tasks) = (Trace(), TaskList(on: loop))
            tasks.post {
                let inner = TaskList(on: loop)
                inner.post {
                    trace.note("in the nested run")
                    inner.stopWhenIdle()
                }
                inner.postTomorrow { trace.note("tomorrow") }
                trace.note("nested: \(loop.run(for: .seconds(60)))")
            }
            tasks.post {
                trace.note("in the outer run")
                tasks.stopWhenIdle()
            }
            tasks.post { trace.note("last") }
            let result = loop.run(for: .seconds(60))
            return (trace.all, result)
        }
        #expect(trace == ["in the nested run", "nested: stopped", "in the outer run", "last"])
        #expect(result == .stopped)
    }

    @Test(
        "R3: a stop kept after the loop's thread has ended does nothing",
        .stands(for: "RunLoopTest.QuitWhenIdleClosureAfterRunLoopScope")
    )
    func stopAfterTheEnd() async {
        let stop = await onLoopThread { loop -> @Sendable () -> Void in
            loop.run(for: .zero)
            return { loop.stop() }
        }
        stop()
        let result = await onLoopThread { loop in
            occupy(loop)
            return loop.run(for: .milliseconds(1))
        }
        #expect(result == .timedOut)
    }

    @Test(
        "R22: after a stop by another thread during a turn no further turn begins",
        .stands(for: "RunLoopTest.QuitFromOtherSequence", "RunLoopTest.QuitFromOtherSequenceWithClosure")
    )
    func stopFromElsewhere() async {
        let (before, result, after) = await onLoopThread { loop in
            let trace = Trace()
            let later = EventSource { _ in trace.note("signalled after the stop") }
            let first = EventSource { _ in
                trace.note("signalled before the stop")
                TestThread { loop.stop() }.join()
                later.signal()
            }
            loop.add(first)
            loop.add(later)
            first.signal()
            let result = loop.run(for: .seconds(60))
            let before = trace.all
            loop.run(for: .zero)
            return (before, result, trace.all.last)
        }
        #expect(before == ["signalled before the stop"])
        #expect(result == .stopped)
        #expect(after == "signalled after the stop")
    }

    @Test(
        "R22: a block that stops the loop, enqueued by another thread at any moment, ends the run",
        .stands(for: "RunLoopTest.QuitFromOtherSequenceRacy", "RunLoopTest.QuitFromOtherSequenceRacyWithClosure")
    )
    func racingStop() async {
        let (ran, results) = await onLoopThread { loop in
            let ran = Counter()
            occupy(loop)
            let results = (0..<100).map { _ in
                loop.perform { ran.increment() }
                let other = TestThread { loop.perform { loop.stop() } }
                defer { other.join() }
                return loop.run(for: .seconds(30))
            }
            return (ran.value, results)
        }
        #expect(ran == 100)
        #expect(results == Array(repeating: .stopped, count: 100))
    }

    @Test(
        "R22: another thread can request a stop when idle: blocks posted by the loop's own thread run first",
        .stands(
            for: "RunLoopTest.QuitWhenIdleFromOtherSequence",
            "RunLoopTest.QuitWhenIdleFromOtherSequenceWithClosure"
        )
    )
    func stopWhenIdleFromElsewhere() async {
        let (trace, result) = await onLoopThread { loop in
            let (trace, tasks) = (Trace(), TaskList(on: loop))
            occupy(loop)
            tasks.post { trace.note("before") }
            let other = TestThread { tasks.post { tasks.stopWhenIdle() } }
            tasks.post { trace.note("after") }
            let result = loop.run(for: .seconds(60))
            other.join()
            return (trace.all, result)
        }
        #expect(trace == ["before", "after"])
        #expect(result == .stopped)
    }

    @Test(
        "R12: the current mode shows whether a loop runs: it is set inside a run and nil outside",
        .stands(for: "RunLoopTest.IsRunningOnCurrentThread")
    )
    func isRunning() async {
        let (before, inside, after) = await onLoopThread { loop in
            let inside = Box<EventRunLoop.Mode?>(nil)
            let before = loop.currentMode
            loop.perform { inside.value = loop.currentMode }
            loop.run(for: .zero)
            return (before, inside.value, loop.currentMode)
        }
        #expect(before == nil && after == nil)
        #expect(inside == .default)
    }

    @Test(
        "R23: a nested run shows as its mode, and is over when it returns",
        .stands(for: "RunLoopTest.IsNestedOnCurrentThread")
    )
    func isNested() async {
        let modes = await onLoopThread { loop in
            let modes = Box<[EventRunLoop.Mode?]>([])
            let note: @Sendable () -> Void = { modes.value.append(loop.currentMode) }
            loop.perform {
                note()
                loop.perform(in: "nested") {
                    note()
                    loop.stop()
                }
                note()
                loop.run(mode: "nested", for: .seconds(60))
                note()
            }
            loop.run(for: .zero)
            return modes.value
        }
        #expect(modes == [.default, .default, "nested", .default])
    }
}
