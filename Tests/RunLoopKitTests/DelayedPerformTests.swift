import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R53.
@Suite(.timeLimit(.minutes(10)))
struct DelayedPerformTests {
    private final class Target: Sendable {}

    @Test("R53: performs run after their delays; equal delays in the order of the calls")
    func order() async {
        let (trace, time) = await onLoopThread { loop in
            let trace = Trace()
            let start = MonotonicInstant.now
            loop.perform(after: .seconds(-1)) { trace.note("at once") }
            for number in 1...50 { loop.perform(after: .milliseconds(10)) { trace.note("\(number)") } }
            loop.perform(after: .milliseconds(20)) { trace.note("late") }
            loop.run()
            return (trace.all, elapsed(since: start))
        }
        #expect(trace == ["at once"] + (1...50).map { "\($0)" } + ["late"])
        #expect(time >= .milliseconds(20))
    }

    @Test("R53: a perform runs once, in whichever of its modes runs first; until then these modes are not empty")
    func modes() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            loop.perform(after: .zero, in: ["a", "b"]) { trace.note("ran") }
            trace.note("\(loop.run(mode: .default))")
            trace.note("\(loop.run(mode: "b"))")
            trace.note("\(loop.run(mode: "a"))")
            return trace.all
        }
        #expect(trace == ["finished", "ran", "finished", "finished"])
    }

    @Test("R27, R53: a delayed perform requested by another thread ends the loop's sleep")
    func otherThread() async throws {
        let worker = try WorkerThread(name: "delayed")
        await onLoopThread { _ in
            let name = Box<String?>(nil)
            waitUntil { worker.loop.isWaiting }
            worker.loop.perform(after: .milliseconds(1)) { name.value = EventRunLoop.current.label }
            waitUntil { name.value == "delayed" }
        }
        worker.stop()
    }

    @Test("R53: a handle cancels its perform and frees the body at once; a second cancel does nothing")
    func handle() async {
        let (trace, isFreed, states) = await onLoopThread { loop in
            let trace = Trace()
            var held: Trace? = Trace()
            let witness = WeakTrace(held!)
            loop.perform(after: .milliseconds(1)) { trace.note("1") }
            let handle = loop.perform(after: .milliseconds(1)) { [held] in held?.note("2") }
            held = nil
            loop.perform(after: .milliseconds(1)) { trace.note("3") }
            let before = handle.isPending
            handle.cancel()
            handle.cancel()
            let isFreed = witness.trace == nil
            loop.run()
            return (trace.all, isFreed, [before, handle.isPending])
        }
        #expect(trace == ["1", "3"])
        #expect(isFreed)
        #expect(states == [true, false])
    }

    @Test("R53: cancelling by target cancels that target's performs in every mode, and no others")
    func target() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let (one, two) = (Target(), Target())
            for _ in 1...3 { loop.perform(after: .milliseconds(1), target: one) { trace.note("one") } }
            loop.perform(after: .milliseconds(1), in: ["other"], target: one) { trace.note("one") }
            loop.perform(after: .milliseconds(1), target: two) { trace.note("two") }
            loop.perform(after: .milliseconds(1)) { trace.note("nobody's") }
            loop.cancelPerforms(target: one)
            loop.cancelPerforms(target: one)
            trace.note("other: \(loop.run(mode: "other"))")
            loop.run()
            return trace.all
        }
        #expect(trace == ["other: finished", "two", "nobody's"])
    }

    @Test("R43, R53: cancelling inside a callout stops performs that are due in the same turn")
    func insideCallout() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let target = Target()
            loop.perform(after: .zero, target: target) {
                trace.note("1")
                loop.cancelPerforms(target: target)
                loop.perform(after: .zero, target: target) { trace.note("again") }
            }
            for _ in 1...3 { loop.perform(after: .zero, target: target) { trace.note("cancelled") } }
            loop.perform(after: .zero) { trace.note("2") }
            loop.run()
            return trace.all
        }
        #expect(trace == ["1", "2", "again"])
    }

    @Test("R53: a target that cancels in its deinit is not called afterwards")
    func deinitOfTarget() async {
        final class Owner: Sendable {
            let loop: EventRunLoop
            init(_ loop: EventRunLoop, _ trace: Trace) {
                self.loop = loop
                loop.perform(after: .zero, target: self) { [weak self] in trace.note(self == nil ? "dead" : "alive") }
            }
            deinit { loop.cancelPerforms(target: self) }
        }
        let trace = await onLoopThread { loop in
            let trace = Trace()
            _ = Owner(loop, trace)
            loop.run()
            return trace.all
        }
        #expect(trace == [])
    }

    @Test("R2, R53: the end of the thread frees delayed performs, also those that retain the loop itself")
    func loopEnds() async {
        let (body, loop) = (Box<WeakTrace?>(nil), Box<WeakLoop?>(nil))
        let handle = await onLoopThread { current in
            let held = Trace()
            body.value = WeakTrace(held)
            loop.value = WeakLoop(current)
            return current.perform(after: .seconds(3600)) {
                held.note("\(current.label)")
            }
        }
        #expect(body.value?.trace == nil)
        #expect(!handle.isPending)
        handle.cancel()
        #expect(loop.value?.loop == nil)
    }

    @Test("R53: a perform that has run is freed, whether its handle is kept or not")
    func freed() async {
        let counts = await onLoopThread { loop in
            let witnesses = (0..<100).map { _ in
                let held = Trace()
                loop.perform(after: .zero, target: held) { held.note("") }
                return WeakTrace(held)
            }
            let before = witnesses.count { $0.trace != nil }
            loop.run()
            return [before, witnesses.count { $0.trace != nil }]
        }
        #expect(counts == [100, 0])
    }

    @Test("R53: requests and cancels from many threads run nothing twice and leave nothing behind")
    func storm() async throws {
        let worker = try WorkerThread(name: "storm")
        let twice = Counter()
        await onLoopThread { _ in
            let threads = (0..<4).map { _ in
                TestThread {
                    for number in 0..<500 {
                        let (target, runs) = (Target(), Counter())
                        let handle = worker.loop.perform(after: .microseconds(number % 50), target: target) {
                            if runs.increment() > 1 { twice.increment() }
                        }
                        if number % 2 == 0 { handle.cancel() } else { worker.loop.cancelPerforms(target: target) }
                        // After that line it is pending only while it runs.
                        waitUntil { !handle.isPending }
                    }
                }
            }
            for thread in threads { thread.join() }
        }
        #expect(twice.value == 0)
        #expect(try await worker.loop.performAndAwait { !EventRunLoop.current.description.contains("timer,") })
        worker.stop()
    }
}
