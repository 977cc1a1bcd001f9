import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R4 to R10: which modes there are, and when one is empty.
@Suite(.timeLimit(.minutes(10)))
struct ModeTests {
    @Test("R4: adding to an unknown mode creates it, and it stays")
    func adding() async {
        let (name, afterRemoval) = await onLoopThread { loop in
            let source = occupy(loop, "tracking")
            let name = loop.modeName(at: 1)
            loop.remove(source, from: "tracking")
            return (name, loop.modeName(at: 1))
        }
        #expect(name == "tracking")
        #expect(afterRemoval == "tracking")
    }

    @Test("R5: the default mode is common from the start")
    func defaultIsCommon() async {
        let modes = await onLoopThread { $0.commonModes }
        #expect(modes == [.default])
    }

    @Test("R6: a source that a mode cannot take as it becomes common is left out, with a warning")
    func leftOut() throws {
        let program = try Fixture.directory() + "/RunLoopFixture"
        // The pipe is a descriptor that can be watched.
        let run = try Fixture.run(command: "{ : | timeout 60 '\(program)' common-mode-refuses 2>&1; }")
        let warning = "RunLoopKit: a descriptor source was left out of a mode that became common"
        #expect(run.lines == [warning, "left out: true"])
    }

    @Test("R6, R54: a port that cannot be watched in a mode as it becomes common is not silent: a warning says so")
    func portNotServed() throws {
        let program = try Fixture.directory() + "/RunLoopFixture"
        let run = try Fixture.run(command: "{ timeout 60 '\(program)' common-mode-refuses-port 2>&1; }")
        let warning = "RunLoopKit: a port is not served in a mode that became common: it cannot be watched there"
        #expect(run.lines == [warning, "connections: 1, in the mode: true"])
    }

    @Test("R6: an item in common is in every common mode, present and future; removing it reverses that")
    func commonItems() async {
        let (added, removed) = await onLoopThread { loop in
            loop.addCommonMode("early")
            let source = EventSource { _ in }
            let modes: [EventRunLoop.Mode] = [.default, "early", "late", .common, "other"]
            loop.add(source, to: .common)
            loop.addCommonMode("late")
            let added = modes.map { loop.contains(source, in: $0) }
            loop.remove(source, from: .common)
            return (added, modes.map { loop.contains(source, in: $0) })
        }
        #expect(added == [true, true, true, true, false])
        #expect(removed == [false, false, false, false, false])
    }

    @Test("R6: a common item that was removed from each mode by name stays recorded until it ends, and no longer")
    func endsInNoMode() async throws {
        let pipe = try Pipe()
        let (before, after) = await onLoopThread { loop in
            let (source, observer) = (EventSource { _ in }, LoopObserver { _, _ in })
            let descriptor = DescriptorSource(descriptor: pipe.reader) { _, _ in }
            let timers = (0..<2).map { _ in EventTimer(after: .seconds(60)) { _ in } }
            loop.add(source, to: .common)
            loop.add(observer, to: .common)
            try? loop.add(descriptor, to: .common)
            for timer in timers { loop.add(timer, to: .common) }
            loop.remove(source)
            loop.remove(observer)
            loop.remove(descriptor)
            for timer in timers { loop.remove(timer) }
            func areRecorded() -> [Bool] {
                [loop.contains(source, in: .common), loop.contains(observer, in: .common)]
                    + [loop.contains(descriptor, in: .common)] + timers.map { loop.contains($0, in: .common) }
            }
            let before = areRecorded()
            source.invalidate()
            observer.invalidate()
            descriptor.invalidate()
            timers[0].invalidate()
            timers[1].fire()
            return (before, areRecorded())
        }
        #expect(before == [true, true, true, true, true])
        #expect(after == [false, false, false, false, false])
    }

    @Test("R6, R41: a timer recorded for the common modes of a loop is on that loop, even while it is in no mode")
    func recordedElsewhere() async {
        let (isOnOther, isOnThis) = await onLoopThread { loop in
            let timer = EventTimer(after: .seconds(60)) { _ in }
            TestThread {
                EventRunLoop.current.add(timer, to: .common)
                EventRunLoop.current.remove(timer)
                loop.add(timer)
            }.join()
            let wasRefused = !loop.contains(timer)
            // The other loop has ended.
            loop.add(timer)
            return (wasRefused, loop.contains(timer))
        }
        #expect(isOnOther)
        #expect(isOnThis)
    }

    @Test("R6: a loop that sleeps in a mode as that becomes common runs what waits for the common modes")
    func becomesCommonAsleep() async {
        let result = await onLoopThread { loop in
            occupy(loop, "late")
            loop.perform(wake: false) { loop.stop() }
            let other = TestThread {
                waitUntil { loop.isWaiting }
                loop.addCommonMode("late")
            }
            defer { other.join() }
            return loop.run(mode: "late", for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R6: so does a loop whose mode becomes common in the last observer before the sleep")
    func becomesCommonBeforeSleep() async {
        let result = await onLoopThread { loop in
            occupy(loop, "late")
            loop.perform(wake: false) { loop.stop() }
            let observer = LoopObserver(activities: .beforeWaiting) { _, _ in loop.addCommonMode("late") }
            loop.add(observer, to: "late")
            return loop.run(mode: "late", for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R6: all kinds of items follow a mode into the common set; an invalidated item does not")
    func commonKinds() async {
        let found = await onLoopThread { loop in
            let timer = EventTimer(after: .seconds(60)) { _ in }
            let observer = LoopObserver { _, _ in }
            let invalid = EventSource { _ in }
            loop.add(timer, to: .common)
            loop.add(observer, to: .common)
            loop.add(invalid, to: .common)
            invalid.invalidate()
            loop.addCommonMode("late")
            return [
                loop.contains(timer, in: "late"), loop.contains(observer, in: "late"),
                loop.contains(invalid, in: "late"),
            ]
        }
        #expect(found == [true, true, false])
    }

    @Test("R7: modes compare by name")
    func names() {
        #expect(EventRunLoop.Mode("a") == "a")
        #expect(EventRunLoop.Mode("default") == .default)
    }

    @Test("R9: a source0, a timer or a block fills a mode; an observer does not")
    func emptiness() async {
        let results = await onLoopThread { loop in
            observe(loop, "observer", in: Trace())
            occupy(loop, "source")
            loop.add(EventTimer(after: .seconds(60)) { _ in }, to: "timer")
            loop.add(LoopObserver { _, _ in }, to: "block")
            loop.perform(in: "block") {}
            let modes: [EventRunLoop.Mode] = ["observer", "source", "timer", "block"]
            return modes.map { loop.run(mode: $0, for: .zero) }
        }
        #expect(results == [.finished, .timedOut, .timedOut, .timedOut])
    }

    @Test("R9: a block for another mode does not fill this one")
    func ineligibleBlock() async {
        let (result, ran) = await onLoopThread { loop in
            let trace = Trace()
            loop.perform(in: "other") { trace.note("ran") }
            return (loop.run(for: .seconds(60)), trace.all)
        }
        #expect(result == .finished)
        #expect(ran == [])
    }

    @Test("Adding an item twice adds it once; removing an item that is not there does nothing")
    func idempotence() async {
        let result = await onLoopThread { loop in
            let source = occupy(loop)
            loop.add(source)
            loop.remove(source)
            loop.remove(source)
            return loop.run(for: .seconds(60))
        }
        #expect(result == .finished)
    }

    @Test("The current mode is that of the innermost activation, and none outside")
    func currentMode() async {
        let modes = await onLoopThread { loop in
            let trace = Trace()
            let note: @Sendable () -> Void = { trace.note(loop.currentMode?.name ?? "none") }
            occupy(loop, "inner")
            note()
            loop.perform {
                note()
                loop.perform(in: "inner", note)
                loop.run(mode: "inner", for: .zero)
                note()
            }
            loop.run(for: .zero)
            note()
            return trace.all
        }
        #expect(modes == ["none", "default", "inner", "default", "none"])
    }
}
