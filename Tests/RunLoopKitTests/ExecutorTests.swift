import Dispatch
import Glibc
import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// R61, on threads with their own loops. Tests that need the main thread are in MainThreadTests.
@Suite(.timeLimit(.minutes(10)))
struct ExecutorTests {
    @Test("R61: an actor pinned to a loop runs on its thread and counts as isolated only there")
    func pinned() async {
        let worker = Worker()
        let register = Register(worker.loop)
        for round in 1...100 {
            #expect(await register.increment() == round)
        }
        #expect(await register.thread == worker.thread)
        #expect(worker.loop.isIsolatingCurrentContext() == false)
        let seen = await worker.ask { loop in
            loop.preconditionIsolated()
            register.preconditionIsolated()
            return (loop.isIsolatingCurrentContext(), register.assumeIsolated { $0.count })
        }
        #expect(seen.0 == true)
        #expect(seen.1 == 100)
        worker.stop()
    }

    @Test("R61: a task that prefers a loop runs there, even after a sleep or another loop's actor")
    func preference() async {
        let (worker, other) = (Worker(), Worker())
        let elsewhere = Register(other.loop)
        let threads = await Task(executorPreference: worker.loop) {
            var threads = [currentThread()]
            await nonisolatedStep()
            threads.append(currentThread())
            try? await Task.sleep(for: .milliseconds(1))
            threads.append(currentThread())
            try? await Task.sleep(for: .milliseconds(1), clock: .suspending)
            threads.append(currentThread())
            _ = await elsewhere.increment()
            threads.append(currentThread())
            await withTaskGroup(of: pthread_t.self) { group in
                for _ in 0..<3 { group.addTask { currentThread() } }
                for await thread in group { threads.append(thread) }
            }
            return threads
        }.value
        #expect(threads.count == 8)
        #expect(threads.allSatisfy { $0 == worker.thread })
        #expect(await elsewhere.thread == other.thread)
        let borrowed = await withTaskExecutorPreference(worker.loop) { await nonisolatedStep() }
        #expect(borrowed == worker.thread)
        worker.stop()
        other.stop()
    }

    @Test("R61: calls that stay on the loop take no turn: among its actors, and from a task that prefers it")
    func noDetour() async {
        let worker = Worker()
        let (register, neighbour) = (Register(worker.loop), Register(worker.loop))
        let turns = await Task(executorPreference: worker.loop) {
            let before = worker.loop.heartbeat.pulse.turn
            for _ in 0..<100 { await nonisolatedStep() }
            return worker.loop.heartbeat.pulse.turn - before
        }.value
        #expect(turns == 0)
        #expect(await register.visit(neighbour, times: 100) == 0)
        #expect(await neighbour.count == 100)
        worker.stop()
    }

    @Test("R61: jobs run first in, first out, and keep a mode from being empty")
    func order() async {
        let results = await onLoopThread { loop in
            let trace = Trace()
            for number in 1...20 {
                Task(executorPreference: loop) { trace.note("\(number)") }
            }
            // The mode has nothing else: the jobs keep it from being empty until they have run.
            return (loop.run(for: .seconds(60)), trace.all)
        }
        #expect(results.0 == .finished)
        #expect(results.1 == (1...20).map { "\($0)" })
    }

    @Test("R9, R19, R61: a job is not a handled source and does not run in a mode that is not common")
    func modes() async {
        let results = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            occupy(loop, "other")
            let task = Task(executorPreference: loop) { trace.note("job") }
            let other = loop.run(mode: "other", for: .milliseconds(5), returnAfterSourceHandled: true)
            trace.note("\(other)")
            trace.note("\(loop.run(for: .milliseconds(5), returnAfterSourceHandled: true))")
            loop.addCommonMode("other")
            Task(executorPreference: loop) { trace.note("job") }
            trace.note("\(loop.run(mode: "other", for: .zero))")
            withExtendedLifetime(task) {}
            return trace.all
        }
        #expect(results == ["timedOut", "job", "timedOut", "job", "timedOut"])
    }

    @Test("R61: a task that yields repeatedly starves neither timers nor descriptors")
    func fairness() async {
        let counts = await onLoopThread { loop in
            let (jobs, timers, descriptors) = (Counter(), Counter(), Counter())
            var ends: [Int32] = [0, 0]
            guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return [0, 0, 0] }
            try? loop.add(DescriptorSource(descriptor: ends[0]) { _, _ in descriptors.increment() })
            loop.add(
                EventTimer(at: .now, every: .nanoseconds(1)) { _ in
                    if timers.increment() == 200 { loop.stop() }
                }
            )
            let task = Task(executorPreference: loop) {
                while !Task.isCancelled {
                    jobs.increment()
                    await Task.yield()
                }
            }
            loop.run(for: .seconds(60))
            task.cancel()
            close(ends[0])
            close(ends[1])
            return [jobs.value, timers.value, descriptors.value]
        }
        #expect(counts[1] == 200)
        // A loop with work at hand polls for ready descriptors in every eighth turn.
        #expect(counts[2] >= 20)
        #expect(counts[0] >= 100)
    }

    @Test("R61: a run nested in a job runs no other job; they run afterwards, with or without a wake-up")
    func nested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let register = Register(loop)
            let second = Box<Task<Void, Never>?>(nil)
            Task {
                await register.perform {
                    // The second job is in the same snapshot, or is enqueued while this one runs.
                    second.value = Task { await register.perform { trace.note("second") } }
                    while loop.isWaiting {}
                    occupy(loop).invalidate()
                    let timer = EventTimer(after: .milliseconds(10)) { _ in trace.note("timer") }
                    loop.add(timer)
                    trace.note("nested: \(loop.run(for: .milliseconds(30)))")
                    trace.note("first ends")
                }
                await register.perform { trace.note("third") }
                // Its thread may have been late: a run that ends sooner would leave it to the end of the loop.
                await second.value?.value
                loop.stop()
            }
            occupy(loop)
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(Array(trace.prefix(3)) == ["timer", "nested: timedOut", "first ends"])
        #expect(Set(trace.dropFirst(3)) == ["second", "third"])
    }

    @Test("R11, R61: inside a job, jobs do not keep a mode from being empty")
    func nestedEmpty() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            Task(executorPreference: loop) {
                Task(executorPreference: loop) { trace.note("second") }
                trace.note("\(loop.runNested(for: .seconds(60)))")
            }
            trace.note("\(loop.run(for: .seconds(60)))")
            return trace.all
        }
        #expect(trace == ["finished", "second", "finished"])
    }

    @Test("R61: a job wakes the loop, whichever thread it comes from")
    func wakes() async {
        let worker = Worker()
        let register = Register(worker.loop)
        for _ in 0..<200 {
            waitUntil { worker.loop.isWaiting }
            _ = await register.increment()
        }
        #expect(await register.count == 200)
        worker.stop()
    }

    @Test(
        "R3, R61: jobs queued when the thread ends run on it; later ones run in order, isolated, one at a time"
    )
    func afterTheEnd() async throws {
        let trace = Trace()
        let box = Box<Register?>(nil)
        let last = Box<Task<pthread_t, Never>?>(nil)
        let thread = await onLoopThread { loop in
            box.value = Register(loop)
            last.value = Task(executorPreference: loop) {
                let thread = currentThread()
                trace.note("at the end")
                // Enqueued again, now too late for the thread.
                await Task.yield()
                trace.note("after the end")
                return thread
            }
            return currentThread()
        }
        #expect(await last.value?.value == thread)
        #expect(trace.all == ["at the end", "after the end"])
        let register = try #require(box.value)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<50 {
                group.addTask {
                    await register.perform {
                        register.preconditionIsolated()
                        register.assumeIsolated { $0.count += 1 }
                    }
                }
            }
        }
        #expect(await register.count == 50)
        let loop = register.loop
        let isolated = await Task(executorPreference: loop) { loop.isIsolatingCurrentContext() }.value
        #expect(isolated == true)
        #expect(loop.isIsolatingCurrentContext() == false)
    }

    @Test("R61: tasks lose nothing and stay on their threads while four loops pass them around")
    func stress() async {
        let workers = (0..<4).map { _ in Worker() }
        let registers = workers.map { Register($0.loop) }
        let wrong = Counter()
        await withTaskGroup(of: Void.self) { group in
            for start in 0..<16 {
                group.addTask {
                    for step in 0..<100 {
                        let index = (start + step) % workers.count
                        _ = await registers[index].increment()
                        let preferred = workers[(index + 1) % workers.count]
                        let thread = await withTaskExecutorPreference(preferred.loop) { await nonisolatedStep() }
                        if thread != preferred.thread { wrong.increment() }
                    }
                }
            }
        }
        #expect(wrong.value == 0)
        var sum = 0
        for register in registers {
            sum += await register.count
            #expect(await register.strays == 0)
        }
        #expect(sum == 1600)
        for worker in workers { worker.stop() }
    }

    @Test("R61: a task's values and cancellation stay its own while another task's job runs inside it")
    func taskInsideTask() async {
        let (outer, inner) = await onLoopThread { loop in
            // A block runs a job in a nested run while a task of the other loop's executor is further up the stack.
            let trace = Trace()
            occupy(loop)
            Task(executorPreference: loop) {
                trace.note(Local.$name.withValue("inner") { Local.name })
                loop.stop()
            }
            let outer = Local.$name.withValue("outer") {
                loop.run(for: .seconds(60))
                return Local.name
            }
            return (outer, trace.all)
        }
        #expect(outer == "outer")
        #expect(inner == ["inner"])
    }
}

enum Local {
    @TaskLocal static var name = "none"
}

/// An actor pinned to a loop.
actor Register {
    nonisolated let loop: EventRunLoop
    var count = 0
    /// Calls on a thread other than the first call's.
    private(set) var strays = 0
    private var first: pthread_t?

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(_ loop: EventRunLoop) { self.loop = loop }

    var thread: pthread_t { pthread_self() }

    func increment() async -> Int {
        let here = pthread_self()
        if first == nil { first = here }
        if first != here { strays += 1 }
        count += 1
        return count
    }

    /// The number of turns that the loop made during the calls.
    func visit(_ other: Register, times: Int) async -> UInt64 {
        let before = loop.heartbeat.pulse.turn
        for _ in 0..<times { _ = await other.increment() }
        return loop.heartbeat.pulse.turn - before
    }

    func perform(_ work: @Sendable () -> Void) { work() }
}

/// A thread that runs its loop until it is stopped.
final class Worker: Sendable {
    let loop: EventRunLoop
    let thread: pthread_t
    private let joined: TestThread

    init() {
        let box = Box<(EventRunLoop, pthread_t)?>(nil)
        joined = TestThread {
            let loop = EventRunLoop.current
            let keepAlive = occupy(loop)
            box.value = (loop, pthread_self())
            loop.run()
            keepAlive.invalidate()
        }
        waitUntil { box.value != nil }
        guard let (loop, thread) = box.value else { preconditionFailure("no loop") }
        self.loop = loop
        self.thread = thread
    }

    /// Runs a closure on the thread.
    func ask<Result: Sendable>(_ question: @escaping @Sendable (EventRunLoop) -> Result) async -> Result {
        await withCheckedContinuation { continuation in
            loop.perform { continuation.resume(returning: question(self.loop)) }
        }
    }

    func stop() {
        // Inside the loop, so that the stop is not lost before the run has begun.
        loop.perform { EventRunLoop.current.stop() }
        joined.join()
    }
}

func currentThread() -> pthread_t { pthread_self() }

@discardableResult
func nonisolatedStep() async -> pthread_t { currentThread() }

extension EventRunLoop {
    /// `run`, for an asynchronous context in which a job intentionally nests a run.
    func runNested(for timeout: Duration) -> RunResult { run(for: timeout) }
}
