import CRunLoopShims
import Glibc
import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// What the workers of a task pool publish, and what is guaranteed to a watcher.
@Suite(.timeLimit(.minutes(10)))
struct TaskPoolHeartbeatTests {
    private let pool = TaskPoolHeartbeat(label: "workers", width: 3)

    @Test("A pool rests while a worker is free, and each job that begins or ends is a transition")
    func rest() {
        #expect(pool.pulse.isAtRest)
        var pulses = [pool.pulse]
        var jobs: [TaskPoolHeartbeat.Job] = []
        for _ in 0..<4 {
            jobs.append(pool.willRun())
            pulses.append(pool.pulse)
        }
        for job in jobs {
            pool.didRun(job)
            pulses.append(pool.pulse)
        }
        #expect(pulses.map(\.isAtRest) == [true, true, true, false, false, false, true, true, true])
        #expect(pulses.map(\.turn) == Array(0...8))
    }

    @Test(
        "Running, begun and waiting jobs are counted; a job not announced as waiting makes no count negative"
    )
    func counts() {
        #expect(!pool.countsWaiting)
        let first = pool.willRun()
        #expect((pool.runningCount, pool.begunCount, pool.waitingCount) == (1, 1, 0))
        for _ in 0..<3 { pool.didEnqueue() }
        #expect(pool.countsWaiting && pool.waitingCount == 2, "the one that runs is taken for one of the three")
        let second = pool.willRun()
        pool.didRun(first)
        #expect((pool.runningCount, pool.begunCount, pool.waitingCount) == (1, 2, 1))
        pool.didRun(second)
        for _ in 0..<3 { pool.run {} }
        #expect((pool.runningCount, pool.begunCount, pool.waitingCount) == (0, 5, 0))
    }

    @Test("A job that throws has ended")
    func throwing() {
        struct Refused: Error {}
        #expect(throws: Refused.self) { try pool.run { () throws(Refused) in throw Refused() } }
        #expect(pool.runningCount == 0 && pool.jobLengths.lengths.count == 1)
    }

    @Test("Each running job has its worker's thread and its beginning, the oldest first")
    func jobs() {
        let (gate, ids) = (Counter(), Box<[Int32]>([]))
        let start = MonotonicInstant.now
        var threads: [TestThread] = []
        for number in 1...3 {
            let pool = pool
            threads.append(
                TestThread {
                    pool.run {
                        ids.value.append(run_loop_current_tid())
                        waitUntil { gate.value == 4 - number }
                    }
                    gate.increment()
                }
            )
            waitUntil { ids.value.count == number }
        }
        let jobs = pool.runningJobs ?? []
        #expect(jobs.map(\.threadID) == ids.value && Set(ids.value).count == 3)
        #expect(jobs.map(\.since) == jobs.map(\.since).sorted())
        #expect(jobs.allSatisfy { $0.since >= start && $0.since <= .now && $0.function == 0 })
        // No worker has been free since the last of them began.
        #expect(pool.turnStamp == jobs.last?.since.nanoseconds)
        gate.increment()
        for thread in threads { thread.join() }
        #expect(pool.runningJobs == [] && pool.turnStamp == 0)
    }

    @Test("The time without a free worker starts with the job that took the last one, not with one beyond that")
    func turnStamp() {
        var jobs = (0..<2).map { _ in pool.willRun() }
        #expect(pool.turnStamp == 0)
        jobs.append(pool.willRun())
        let since = pool.runningJobs?.last?.since.nanoseconds
        jobs.append(pool.willRun())
        #expect(pool.turnStamp == since && since != nil)
        for job in jobs { pool.didRun(job) }
    }

    @Test(
        "A width outside 1 to 4,096 is replaced by the nearer end",
        arguments: [(-5, 1), (0, 1), (4_097, 4_096), (.max, 4_096)]
    )
    func widths(asked: Int, width: Int) {
        let pool = TaskPoolHeartbeat(label: "", width: asked)
        #expect(pool.width == width)
        let jobs = (0..<width).map { _ in pool.willRun() }
        #expect(!pool.pulse.isAtRest && pool.runningJobs?.count == width)
        for job in jobs { pool.didRun(job) }
        #expect(pool.pulse.isAtRest)
    }

    @Test("Jobs beyond the capacity are not counted, do not wait any more, and end without harm")
    func noPlaceLeft() {
        for _ in 0..<1_001 { pool.didEnqueue() }
        let jobs = (0..<1_000).map { _ in pool.willRun() }
        #expect(pool.waitingCount == 1)
        let counted = pool.runningCount
        #expect(counted >= 3 && counted < 1_000 && pool.runningJobs?.count == counted)
        for job in jobs { pool.didRun(job) }
        #expect(pool.runningCount == 0 && pool.begunCount == UInt64(counted))
        #expect(pool.jobLengths.lengths.count == UInt64(counted))
    }

    @Test("The lengths of all jobs are counted, and the place where the longest one began is known")
    func lengths() throws {
        var pool = pool
        #expect(pool.jobLengths.lengths.count == 0 && pool.jobLengths.longestFunctions == [])
        // Again, if one of the others took so long because this thread got no processor.
        var attempts = 1
        while try threeJobs(in: pool) > .milliseconds(100), attempts < 5 {
            attempts += 1
            pool = TaskPoolHeartbeat(label: "again", width: 3)
        }
        let (lengths, functions) = pool.jobLengths
        #expect(lengths.count == 3 && lengths.longest >= 300_000_000 && functions == [0x200, 0x201])
        #expect(lengths.length(ofShare: 0.3) < lengths.longest)
    }

    /// The second one takes at least 300 ms. Returns the greatest time that another one can have taken.
    private func threeJobs(in pool: TaskPoolHeartbeat) throws -> Duration {
        let cPool = try unsafe #require(pool.cPool)
        var longest = Duration.zero
        for function in [0x100, 0x200, 0x300] as [UInt] {
            let start = MonotonicInstant.now
            // One after the other at the same place: the first has more functions than the others.
            let third: UInt = function == 0x100 ? function + 2 : 0
            let job = unsafe task_pool_begin(cPool, [function, function + 1, third, 0])
            if function == 0x200 { usleep(300_000) }
            unsafe task_pool_end(cPool, job)
            if function != 0x200 { longest = max(longest, elapsed(since: start)) }
        }
        return longest
    }

    // MARK: - A watcher's requests

    @Test("A wake-up requested at rest is made by the job that takes the last worker, once")
    func wakeSignal() {
        let watcher = CountingWatcher()
        #expect(pool.attach(watcher) && !pool.attach(CountingWatcher()))
        #expect(pool.requestWakeSignal())
        var jobs = (0..<2).map { _ in pool.willRun() }
        #expect(watcher.calls.value == 0)
        jobs.append(pool.willRun())
        #expect(watcher.calls.value == 1)
        pool.didRun(jobs.removeLast())
        jobs.append(pool.willRun())
        #expect(watcher.calls.value == 1, "it was granted")
        for job in jobs { pool.didRun(job) }
    }

    @Test("A request for a wake-up without a free worker is refused and leaves nothing behind")
    func refusedWakeSignal() {
        let watcher = CountingWatcher()
        _ = pool.attach(watcher)
        var jobs = (0..<3).map { _ in pool.willRun() }
        #expect(!pool.requestWakeSignal())
        pool.didRun(jobs.removeLast())
        jobs.append(pool.willRun())
        #expect(watcher.calls.value == 0)
        for job in jobs { pool.didRun(job) }
    }

    @Test("Detaching withdraws the request for a wake-up, and another watcher can be attached")
    func detachedWish() {
        let (first, second) = (CountingWatcher(), CountingWatcher())
        _ = pool.attach(first)
        _ = pool.requestWakeSignal()
        pool.detach()
        #expect(pool.attach(second))
        let jobs = (0..<3).map { _ in pool.willRun() }
        for job in jobs { pool.didRun(job) }
        #expect((first.calls.value, second.calls.value) == (0, 0))
    }

    @Test("The end of the pool makes a requested wake-up, and refuses later requests")
    func end() {
        let watcher = CountingWatcher()
        _ = pool.attach(watcher)
        _ = pool.requestWakeSignal()
        #expect(!pool.hasEnded)
        pool.end()
        #expect(pool.hasEnded && watcher.calls.value == 1)
        #expect(!pool.requestWakeSignal())
    }

    @Test("A watcher of single jobs is woken by the first that begins, and not by further jobs beside it")
    func jobSignal() {
        let (watcher, other) = (CountingWatcher(), CountingWatcher())
        #expect(pool.attachToJobs(watcher) && !pool.attachToJobs(other))
        _ = pool.attach(other)
        #expect(pool.requestJobSignal())
        let first = pool.willRun()
        #expect(watcher.calls.value == 1 && !pool.requestJobSignal(), "one is in progress")
        let second = pool.willRun()
        #expect(pool.oldestJob == pool.runningJobs?.first)
        pool.didRun(first)
        #expect(pool.oldestJob == pool.runningJobs?.first && pool.oldestJob != nil)
        pool.didRun(second)
        #expect(pool.oldestJob == nil && pool.requestJobSignal())
        pool.detachFromJobs()
        pool.run {}
        #expect((watcher.calls.value, other.calls.value) == (1, 0))
        #expect(pool.attachToJobs(other) && pool.requestJobSignal())
        pool.end()
        #expect(other.calls.value == 1 && !pool.requestJobSignal())
    }

    @Test("A transition stamp is made by the very next beginning or end, once, and is taken once")
    func transitionStamp() {
        _ = pool.attach(CountingWatcher())
        let job = pool.willRun()
        pool.requestTransitionStamp()
        #expect(pool.takeTransitionStamp() == nil)
        pool.requestTransitionStamp()
        let before = MonotonicInstant.now.nanoseconds
        pool.didRun(job)
        let after = MonotonicInstant.now.nanoseconds
        pool.run {}
        let stamp = pool.takeTransitionStamp() ?? 0
        #expect((before...after).contains(stamp))
        #expect(pool.takeTransitionStamp() == nil)
    }
}

/// Workers and a watcher at the same time.
@Suite(.timeLimit(.minutes(10)))
struct TaskPoolRaceTests {
    @Test(
        "Under contention every job is counted, and a watcher reads true values or none"
    )
    func race() {
        let (workers, jobs) = (4, 20_000)
        let pool = TaskPoolHeartbeat(label: "race", width: workers)
        let (ids, standing, gate) = (Trace(), Counter(), Counter())
        let threads = (0..<workers).map { _ in
            TestThread {
                ids.note("\(run_loop_current_tid())")
                for _ in 0..<jobs {
                    pool.didEnqueue()
                    pool.run { delay() }
                }
                pool.run {
                    standing.increment()
                    waitUntil { gate.value == 1 }
                }
            }
        }
        var wrong = 0
        var last = (begun: UInt64(0), turn: UInt64(0))
        waitUntil { ids.all.count == workers }
        let known = Set(ids.all.compactMap { Int32($0) })
        while standing.value < workers {
            let (begun, turn) = (pool.begunCount, pool.pulse.turn)
            wrong += begun < last.begun || turn < last.turn ? 1 : 0
            last = (begun, turn)
            guard let running = pool.runningJobs else { continue }
            let isTrue =
                running.count <= workers && Set(running.map(\.threadID)).count == running.count
                && running.allSatisfy { known.contains($0.threadID) && $0.since <= .now }
            wrong += isTrue ? 0 : 1
        }
        #expect(wrong == 0)
        #expect(pool.runningJobs.map { Set($0.map(\.threadID)) } == known)
        gate.increment()
        for thread in threads { thread.join() }
        let all = UInt64(workers * jobs + workers)
        #expect((pool.begunCount, pool.runningCount, pool.waitingCount) == (all, 0, 0))
        #expect(pool.jobLengths.lengths.count == all)
    }

    @Test("No moment without a free worker is lost: a watcher that waits for its wake-up is always woken")
    func dekker() {
        let last = Box(50_000)
        let deadline = MonotonicInstant.now.advanced(by: .seconds(3))
        let pool = TaskPoolHeartbeat(label: "dekker", width: 2)
        let watcher = CountingWatcher()
        _ = pool.attach(watcher)
        let (acknowledged, departures, granted) = (Counter(), Counter(), Counter())
        // Both workers are taken, and stay so until the watcher knows: a lost wake-up is lost forever.
        let worker = TestThread {
            var random = SplitMix64(seed: 1)
            let standing = pool.willRun()
            for round in 1... {
                // After a varying delay, to hit the request at each of its steps.
                for _ in 0..<random.next() % 64 { delay() }
                let job = pool.willRun()
                departures.increment()
                guard spin(until: { acknowledged.value >= round }) else { break }
                pool.didRun(job)
                guard round < last.value else { break }
            }
            pool.didRun(standing)
        }
        for round in 1... {
            if round >= 1_000, MonotonicInstant.now > deadline { last.value = round }
            let calls = watcher.calls.value
            if pool.requestWakeSignal() {
                granted.increment()
                guard spin(until: { watcher.calls.value > calls }) else { break }
            }
            // Refused or woken: no worker is free now or immediately afterwards.
            guard spin(until: { departures.value >= round }) else { break }
            acknowledged.increment()
            guard round < last.value, spin(until: { pool.pulse.isAtRest || departures.value > round }) else { break }
        }
        worker.join()
        #expect(acknowledged.value == last.value)
        #expect(granted.value > 0 && watcher.calls.value == granted.value)
    }
}
