import Glibc
import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// R52.
@Suite(.timeLimit(.minutes(10)))
struct PerformRequestTests {
    @Test(
        "R52: one turn serves all requests of a mode, first in, first out; requests from them wait for the next"
    )
    func order() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            loop.performAsSource {
                trace.note("1")
                loop.performAsSource { trace.note("3") }
            }
            loop.performAsSource { trace.note("2") }
            loop.run()
            return trace.all
        }
        #expect(trace == ["entry", "timers", "sources", "1", "2", "timers", "sources", "3", "exit"])
    }

    @Test("R52: a request waits for one of its modes, keeps its place, and runs once even if it names several")
    func modes() async {
        let (inDefault, inOther) = await onLoopThread { loop in
            let trace = Trace()
            loop.performAsSource(in: ["other"]) { trace.note("1") }
            loop.performAsSource(in: ["other", .default]) { trace.note("2") }
            loop.performAsSource { trace.note("3") }
            loop.performAsSource(in: ["other"]) { trace.note("4") }
            loop.run(for: .zero)
            let inDefault = trace.all
            loop.run(mode: "other", for: .zero)
            return (inDefault, Array(trace.all.dropFirst(inDefault.count)))
        }
        #expect(inDefault == ["2", "3"])
        #expect(inOther == ["1", "4"])
    }

    @Test("R52: a request in the common modes is served in a mode that became common after it was passed over")
    func common() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop, "late")
            loop.performAsSource { trace.note("common") }
            loop.run(mode: "late", for: .zero)
            trace.note("not yet")
            loop.addCommonMode("late")
            loop.run(mode: "late", for: .zero)
            return trace.all
        }
        #expect(trace == ["not yet", "common"])
    }

    @Test("R9, R52: requests keep a mode from being empty while they wait, and no longer")
    func population() async {
        let results = await onLoopThread { loop in
            let before = loop.run(mode: "m")
            loop.performAsSource(in: ["m"]) {}
            return [
                before, loop.run(mode: "m", for: .seconds(60), returnAfterSourceHandled: true), loop.run(mode: "m"),
            ]
        }
        #expect(results == [.finished, .handledSource, .finished])
    }

    @Test("R19, R30: a request is a handled source; all are served, then at most one signalled source")
    func handled() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            for number in 1...2 {
                let source = EventSource { _ in trace.note("source \(number)") }
                loop.add(source)
                source.signal()
                loop.performAsSource { trace.note("request \(number)") }
            }
            trace.note("\(loop.run(for: .seconds(60), returnAfterSourceHandled: true))")
            trace.note("\(loop.run(for: .seconds(60), returnAfterSourceHandled: true))")
            return trace.all
        }
        #expect(trace == ["request 1", "request 2", "source 1", "handledSource", "source 2", "handledSource"])
    }

    @Test("R23, R52: a nested run serves, in order, the requests that the outer run has not reached")
    func nested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            loop.performAsSource {
                trace.note("1")
                loop.performAsSource { trace.note("3") }
                trace.note("\(loop.run(mode: .default))")
            }
            loop.performAsSource { trace.note("2") }
            loop.run()
            return trace.all
        }
        #expect(trace == ["1", "2", "3", "finished"])
    }

    @Test(
        "R52: another thread's request ends the sleep; its caller gets the body's result or error"
    )
    func results() async throws {
        struct Refusal: Error, Equatable { let number: Int }
        let worker = try WorkerThread(name: "results")
        let (value, refusal, thread) = await onLoopThread { _ in
            let value = try? worker.loop.performAndWait { 6 * 7 }
            let refusal = #expect(throws: Refusal.self) {
                try worker.loop.performAndWait { throw Refusal(number: 3) }
            }
            return (value, refusal, try? worker.loop.performAndWait { EventRunLoop.current.label })
        }
        #expect(value == 42)
        #expect(refusal == Refusal(number: 3))
        #expect(thread == "results")
        worker.stop()
    }

    @Test("R52: on the loop's own thread, performAndWait runs the body at once, in no mode")
    func ownThread() async {
        let (value, didRun) = await onLoopThread { loop in
            let value = try? loop.performAndWait(in: ["nobody runs it"]) { loop.currentMode == nil }
            return (value, loop.run() != .finished)
        }
        #expect(value == true)
        #expect(!didRun)
    }

    /// If every turn searched all of them, the suite's time limit would be exceeded.
    @Test("R52: requests parked for a mode that does not run cost another mode's turns nothing")
    func parked() async {
        let (ran, left, unparked) = await onLoopThread { loop in
            let (ran, unparked) = (Counter(), Counter())
            for _ in 0..<20_000 { loop.performAsSource(in: ["parked"]) { unparked.increment() } }
            for _ in 0..<20_000 {
                loop.performAsSource { ran.increment() }
                loop.run(for: .zero)
            }
            let left = loop.snapshot.performRequests
            loop.run(mode: "parked", for: .zero)
            return (ran.value, left, unparked.value)
        }
        #expect(ran == 20_000 && left == 20_000 && unparked == 20_000)
    }

    @Test("R52: withdrawn requests free their bodies at once, leave the mode empty and disturb no order")
    func withdrawn() async {
        let (trace, held) = await onLoopThread { loop in
            let trace = Trace()
            for number in 1...3 { loop.performAsSource(in: ["other"]) { trace.note("\(number)") } }
            let held = withdraw(50, from: loop, mode: "m")
            trace.note("waiting: \(loop.snapshot.performRequests)")
            trace.note("\(loop.run(mode: "m"))")
            loop.performAsSource(in: ["other"]) { trace.note("4") }
            loop.run(mode: "other")
            trace.note("waiting: \(loop.snapshot.performRequests)")
            return (trace.all, held)
        }
        #expect(trace == ["waiting: 3", "finished", "1", "2", "3", "4", "waiting: 0"])
        #expect(held == 0)
    }

    /// If each withdrawal searched all the others, the suite's time limit would be exceeded.
    @Test("R52: withdrawing one of many waiting requests does not cost time for each")
    func withdrawnFromMany() async {
        let waiting = await onLoopThread { loop in
            for _ in 0..<20_000 { loop.performAsSource(in: ["m"]) {} }
            _ = withdraw(20_000, from: loop, mode: "m")
            return loop.snapshot.performRequests
        }
        #expect(waiting == 20_000)
    }

    @Test(
        "R52: a request not begun in time is withdrawn and its body released; one that has begun is waited for"
    )
    func timeout() async throws {
        let worker = try WorkerThread(name: "timeout")
        let trace = Trace()
        let witness = Box<WeakTrace?>(nil)
        let (code, value) = await onLoopThread { _ in
            let gate = Counter()
            worker.loop.performAsSource { waitUntil { gate.value == 1 } }
            var code: RunLoopError.Code?
            do {
                let held = Trace()
                witness.value = WeakTrace(held)
                try worker.loop.performAndWait(timeout: .milliseconds(5)) {
                    held.note("")
                    trace.note("ran")
                }
            } catch {
                code = (error as? RunLoopError)?.code
            }
            let held = witness.value?.trace != nil
            gate.increment()
            let begun = Counter()
            let value = try? worker.loop.performAndWait(timeout: .seconds(60)) {
                begun.increment()
                return 1
            }
            trace.note(held ? "leaked" : "released")
            return (code, value)
        }
        #expect(code == .requestTimedOut)
        #expect(value == 1)
        #expect(trace.all == ["released"])
        worker.stop()
    }

    @Test("R52: a request whose time expires while it runs is waited for to its end")
    func timeoutInTheMiddle() async throws {
        let worker = try WorkerThread(name: "middle")
        let (begun, value) = await onLoopThread { _ in
            let begun = Counter()
            var value: String?
            // A request that a busy machine begins too late is withdrawn: the next one is for the test, with more time.
            for attempt in 0..<10 where begun.value == 0 {
                value = try? worker.loop.performAndWait(timeout: .milliseconds(20 << attempt)) {
                    begun.increment()
                    let start = MonotonicInstant.now
                    waitUntil { elapsed(since: start) > .milliseconds(60 << attempt) }
                    return "whole"
                }
            }
            return (begun.value, value)
        }
        #expect(begun == 1 && value == "whole")
        worker.stop()
    }

    @Test("R52: if the loop ends first, waiting callers get loopEnded, and the bodies are released without running")
    func loopEnds() async {
        let trace = Trace()
        let witness = Box<WeakTrace?>(nil)
        let waiter = Box<TestThread?>(nil)
        let lateCode = Box<RunLoopError.Code?>(nil)
        let ended = await onLoopThread { loop in
            let held = Trace()
            witness.value = WeakTrace(held)
            waiter.value = TestThread {
                trace.note(outcome { try loop.performAndWait { held.note("ran") } })
            }
            waitUntil { loop.snapshot.performRequests == 1 }
            return loop
        }
        waiter.value?.join()
        await onLoopThread { _ in lateCode.value = code { try ended.performAndWait {} } }
        #expect(trace.all == ["loopEnded"])
        #expect(lateCode.value == .loopEnded)
        #expect(witness.value?.trace == nil)
    }

    @Test("R52: if the thread ends during a request, the caller stops waiting")
    func threadEndsInRequest() async {
        let loop = Box<EventRunLoop?>(nil)
        let code = Box<RunLoopError.Code?>(nil)
        let thread = TestThread {
            occupy(EventRunLoop.current)
            loop.value = EventRunLoop.current
            EventRunLoop.current.run()
        }
        await onLoopThread { _ in
            waitUntil { loop.value != nil }
            code.value = RunLoopKitTests.code { try loop.value?.performAndWait { pthread_exit(nil) } }
        }
        thread.join()
        #expect(code.value == .loopEnded)
    }

    @Test("performAndAwait suspends the task, and returns results, errors and the loop's end")
    func awaited() async throws {
        let worker = try WorkerThread(name: "awaited")
        #expect(try await worker.loop.performAndAwait { EventRunLoop.current.label } == "awaited")
        await #expect(throws: CancellationError.self) {
            try await worker.loop.performAndAwait { throw CancellationError() }
        }
        worker.stop()
        await onLoopThread { _ in _ = worker.join() }
        let error = await #expect(throws: RunLoopError.self) { try await worker.loop.performAndAwait {} }
        #expect(error?.code == .loopEnded)
    }

    @Test("A cancelled task's request is withdrawn if it has not begun")
    func cancelled() async throws {
        let worker = try WorkerThread(name: "cancelled")
        let gate = Counter()
        let trace = Trace()
        worker.loop.performAsSource { waitUntil { gate.value == 1 } }
        let task = Task { try await worker.loop.performAndAwait { trace.note("ran") } }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        gate.increment()
        try await worker.loop.performAndAwait {}
        #expect(trace.all == [])
        worker.stop()
    }

    @Test(
        "R52: when the loop's thread ends, all waiting threads return, with a result or with loopEnded"
    )
    func storm() async throws {
        for round in 0..<40 {
            let worker = try WorkerThread(name: "storm")
            let (done, lost, other) = (Counter(), Counter(), Counter())
            let ran = Counter()
            let callers = (0..<6).map { number in
                TestThread {
                    for call in 0..<50 {
                        switch code({
                            try worker.loop.performAndWait(timeout: call % 7 == number ? .microseconds(50) : nil) {
                                _ = ran.increment()
                            }
                        }) {
                        case nil: done.increment()
                        case RunLoopError.Code.loopEnded?, RunLoopError.Code.requestTimedOut?: lost.increment()
                        default: other.increment()
                        }
                    }
                }
            }
            await onLoopThread { _ in
                waitUntil { ran.value >= round * 5 }
                worker.stop(draining: round % 2 == 0)
                for caller in callers { caller.join() }
                worker.join()
            }
            #expect(done.value + lost.value == 300 && other.value == 0)
            #expect(ran.value == done.value)
        }
    }
}

/// Makes `count` requests on another thread and withdraws each at once; returns how many bodies are retained after that. The
/// loop does not run.
private func withdraw(_ count: Int, from loop: EventRunLoop, mode: EventRunLoop.Mode) -> Int {
    let held = Counter()
    let thread = TestThread {
        for _ in 0..<count {
            let content = Trace()
            let witness = WeakTrace(content)
            #expect(throws: RunLoopError.self) {
                try loop.performAndWait(in: [mode], timeout: .zero) { [content] in content.note("ran") }
            }
            _ = consume content
            if witness.trace != nil { held.increment() }
        }
    }
    thread.join()
    return held.value
}

/// The code of the `RunLoopError` that `body` throws; nil if it throws none.
func code(_ body: () throws -> Void) -> RunLoopError.Code? {
    do {
        try body()
        return nil
    } catch {
        return (error as? RunLoopError)?.code
    }
}

/// `done`, or the name of what `body` throws.
func outcome(_ body: () throws -> Void) -> String {
    switch code(body) {
    case nil: "done"
    case RunLoopError.Code.loopEnded?: "loopEnded"
    case RunLoopError.Code.requestTimedOut?: "requestTimedOut"
    default: "other"
    }
}
