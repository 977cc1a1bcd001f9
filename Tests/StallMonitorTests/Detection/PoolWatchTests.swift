import Foundation
import RunLoopKit
import StallDetection
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

/// A pool as the watchdog sees it, look by look: the jobs begin and end now, the looks have simulated times. A tick lasts so long
/// that the test's own time does not count.
@Suite("When a task pool is starved")
struct PoolDetectionTests {
    private let pool = TaskPoolHeartbeat(label: "workers", width: 2)
    private let watchdog = Watchdog()
    private let start = MonotonicInstant.now

    private func watched(
        _ rule: StallRule = StallRule(tick: .seconds(50), repeated: nil, congested: nil),
        oneByOne: Bool = false
    ) -> WatchedLoop {
        let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
        let thing = oneByOne ? WatchedThing.job(OldestJob(of: pool)) : .pool(pool)
        _ = thing.heartbeat.attach(wakeFlag)
        let name = WatchName(type: .taskPool, label: pool.label)
        return WatchedLoop(
            identity: .init(number: 1, name: name, since: start),
            loop: thing,
            rule: rule,
            wakeFlag: wakeFlag
        )
    }

    /// What the look after this many ticks finds. Nothing dismisses a candidate.
    private func look(_ watched: WatchedLoop, after ticks: Int) -> [StallFinding] {
        let findings = watched.look(at: start + .seconds(50) * ticks + .seconds(40), late: false)
        for finding in findings { if case .candidate = finding.decision { watched.policy.confirm(finding.category) } }
        return findings
    }

    private func begins(_ findings: [StallFinding]) -> StallSpan? {
        guard findings.count == 1, findings[0].category == .blocked, case .candidate(let span) = findings[0].decision
        else {
            return nil
        }
        return span
    }

    @Test("If every worker is in one job for the threshold, that is a stall, from when the last worker was taken")
    func starved() throws {
        let watched = watched()
        let jobs = [pool.willRun(), pool.willRun()]
        let since = pool.turnStamp
        for tick in 0..<5 { #expect(look(watched, after: tick) == []) }
        let span = try #require(begins(look(watched, after: 5)))
        #expect(span.isExact == false || span.earliestStart.nanoseconds == since)
        #expect(span.earliestStart.nanoseconds == since && span.length >= .seconds(250))
        for tick in 6..<40 { #expect(look(watched, after: tick).allSatisfy { begins([$0]) == nil }) }
        for job in jobs { pool.didRun(job) }
    }

    @Test("A pool with a free worker is at rest, however long the other workers' jobs last")
    func oneFree() {
        let watched = watched()
        let job = pool.willRun()
        for tick in 0..<100 { #expect(look(watched, after: tick) == [] && watched.isAtRest) }
        pool.didRun(job)
    }

    @Test("If jobs come and go while no worker is free, there is no stall, even if only one worker takes them")
    func turnOver() {
        let watched = watched()
        let standing = pool.willRun()
        var other = pool.willRun()
        for tick in 0..<200 {
            #expect(look(watched, after: tick) == [])
            guard tick % 2 == 1 else { continue }
            pool.didRun(other)
            other = pool.willRun()
        }
        for job in [standing, other] { pool.didRun(job) }
    }

    @Test("A worker that was free for a moment restarts the count")
    func reset() {
        let watched = watched()
        let standing = pool.willRun()
        var other = pool.willRun()
        for tick in 0..<5 { #expect(look(watched, after: tick) == []) }
        pool.didRun(other)
        other = pool.willRun()
        for tick in 5..<9 { #expect(look(watched, after: tick) == []) }
        #expect((9...11).contains { begins(look(watched, after: $0)) != nil })
        for job in [standing, other] { pool.didRun(job) }
    }

    @Test(
        "The stall ends with the first job that ends, even if the next one begins at once; a later one is another stall"
    )
    func end() {
        let watched = watched()
        let standing = pool.willRun()
        var other = pool.willRun()
        #expect((0...5).count { begins(look(watched, after: $0)) != nil } == 1)
        pool.didRun(other)
        other = pool.willRun()
        let findings = look(watched, after: 6)
        #expect(findings.count == 1 && findings[0].endsStall)
        #expect((7...12).count { begins(look(watched, after: $0)) != nil } == 1)
        pool.didRun(other)
        #expect(look(watched, after: 13).contains(where: \.endsStall) && watched.isAtRest)
        pool.didRun(standing)
    }

    @Test("A long job is found among short ones, which are not")
    func oneByOne() {
        let watched = watched(oneByOne: true)
        #expect(look(watched, after: 0) == [] && watched.isAtRest)
        let long = pool.willRun()
        var found: [Int] = []
        for tick in 1..<20 {
            let beside = pool.willRun()
            if begins(look(watched, after: tick)) != nil { found.append(tick) }
            pool.didRun(beside)
        }
        // Counted from its own beginning, which was before the first look.
        #expect(found.count == 1 && (5...6).contains(found.first ?? 0))
        pool.didRun(long)
        #expect(look(watched, after: 20).contains(where: \.endsStall) && watched.isAtRest)
        var jobs = [pool.willRun()]
        for tick in 21..<60 {
            #expect(look(watched, after: tick) == [])
            guard tick % 3 == 2 else { continue }
            jobs.append(pool.willRun())
            pool.didRun(jobs.removeFirst())
        }
        for job in jobs { pool.didRun(job) }
    }

    @Test("The tick and the threshold are those of the rule")
    func rule() {
        let watched = watched(StallRule(tick: .seconds(50), ticks: 20, repeated: nil, congested: nil))
        let jobs = [pool.willRun(), pool.willRun()]
        for tick in 0..<20 { #expect(look(watched, after: tick) == []) }
        #expect(begins(look(watched, after: 20)) != nil)
        for job in jobs { pool.didRun(job) }
    }

    @Test(
        "A job is long at the configured length, however short the tick is",
        arguments: [Duration.milliseconds(1), .milliseconds(50), .seconds(60)],
        [Duration.milliseconds(1), .seconds(60), .seconds(600)]
    )
    func longJob(tick: Duration, length: Duration) {
        let rule = StallRule(tick: tick).forJobs(longerThan: length)
        #expect(rule.threshold == max(tick, length) && rule.broughtIntoRange().errors.isEmpty)
    }
}

/// A round over pools whose workers are real threads.
@Suite(
    "The watchdog and task pools",
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct PoolRoundTests {
    private let quick = StallRule(tick: .milliseconds(2), ticks: 3, repeated: nil, congested: nil)

    /// Looks until there is a notice, or half a minute has passed.
    private func look<Told>(_ test: inout RoundUnderTest, until told: (StallNotice) -> Told?) -> Told? {
        let deadline = MonotonicInstant.now + .seconds(30)
        while MonotonicInstant.now < deadline {
            test.round.look()
            for notice in test.takeNotices() { if let told = told(notice) { return told } }
        }
        return nil
    }

    /// Watches a pool, and keeps each of its workers in one job.
    private func starve(_ pool: TaskPoolHeartbeat, _ test: inout RoundUnderTest) -> StandingCrew {
        test.watch(pool, number: 1, rule: quick)
        test.round.look()
        return StandingCrew(pool.width, of: pool)
    }

    private func began(_ test: inout RoundUnderTest) throws -> StallObservation {
        let stall = look(&test) { if case .began(let stall) = $0 { stall } else { nil } }
        return try #require(stall)
    }

    @Test("A pool with a free worker is not looked at")
    func quiet() {
        var test = RoundUnderTest()
        let pools = (0..<100).map { TaskPoolHeartbeat(label: "pool \($0)", width: 2) }
        for (number, pool) in pools.enumerated() { test.watch(pool, number: number + 1) }
        #expect(test.visitsOfALook() == 100)
        let jobs = pools.map { $0.willRun() }
        #expect(test.visitsOfALook() == 0 && test.round.isAtRest)
        let last = pools[7].willRun()
        #expect(test.visitsOfALook() == 1)
        pools[7].didRun(last)
        #expect(test.visitsOfALook() == 1 && test.visitsOfALook() == 0)
        for (pool, job) in zip(pools, jobs) { pool.didRun(job) }
        test.round.finish()
    }

    @Test("A starved pool is reported with each worker, the longest job first, and the number of waiting jobs")
    func workers() throws {
        var test = RoundUnderTest()
        let pool = TaskPoolHeartbeat(label: "workers", width: 3)
        let crew = starve(pool, &test)
        for _ in 0..<5 { pool.didEnqueue() }
        let stall = try began(&test)
        #expect(stall.watch.name == WatchName(type: .taskPool, label: "workers") && stall.category == .blocked)
        let found = try #require(stall.pool)
        #expect(found.workers.map(\.job.threadID) == crew.threadIDs)
        #expect((found.width, found.running, found.waiting) == (3, 3, 2))
        #expect(stall.threadID == crew.threadIDs.first)
        #expect(found.workers.allSatisfy { $0.evidence != nil })
        // This round cannot take stacks, and says so for each worker.
        #expect(found.stacks.isEmpty && found.workers.allSatisfy { $0.problem != nil })
        crew.release(1)
        let ended = look(&test) { notice in
            if case .ended(let number, let span, _, .recovered) = notice { (number, span) } else { nil }
        }
        #expect(ended?.0 == stall.number)
        crew.release(2)
        test.round.finish()
    }

    @Test("Each stack that is taken of a starved pool is counted once")
    func captures() throws {
        var test = RoundUnderTest(StackSource(signal: SIGVTALRM) { _ in })
        let pool = TaskPoolHeartbeat(label: "workers", width: 3)
        let crew = starve(pool, &test)
        let deadline = MonotonicInstant.now + .seconds(30)
        var (before, found): (Int, PoolObservation?) = (0, nil)
        while found == nil, MonotonicInstant.now < deadline {
            before = test.ledger.snapshot.captures
            test.round.look()
            for case .began(let stall) in test.takeNotices() { found = stall.pool }
        }
        let counted = test.ledger.snapshot.captures - before
        let stalled = try #require(found)
        #expect(!stalled.stacks.isEmpty && counted == stalled.costs.count)
        crew.release(3)
        test.round.finish()
    }

    @Test("A pool's report has the lengths of the jobs since its watch began")
    func lengths() throws {
        var test = RoundUnderTest()
        let pool = TaskPoolHeartbeat(label: "workers", width: 1)
        for _ in 0..<10 { pool.run {} }
        test.watch(pool, number: 1, rule: quick)
        for _ in 0..<30 { pool.run {} }
        let crew = StandingCrew(1, of: pool)
        let stall = try began(&test)
        let directory = TemporaryDirectory(inMemory: true)
        let parts = EngineParts(StallMonitor.Configuration(directory: directory.path))
        parts.notices.add(.began(stall))
        parts.notices.add(.ended(stall.number, stall.span, nil, .abandoned))
        parts.notices.close()
        let counts = Mutex<[UInt64?]>([])
        Reporter(parts) { event in
            switch event {
            case .began(let report), .ended(let report):
                counts.withLock { $0.append(report.watched.turnDurations?.count) }
            default: break
            }
        }.run()
        #expect(counts.withLock { $0 } == [30, 30])
        #expect(parts.writer.join(by: .now + .seconds(60)))
        crew.release(1)
        test.round.finish()
    }

    @Test("A pause abandons a stall that goes on, and asks for no stack")
    func pauseInAStall() throws {
        var test = RoundUnderTest()
        let pool = TaskPoolHeartbeat(label: "workers", width: 1)
        let crew = starve(pool, &test)
        _ = try began(&test)
        // Afterwards a look would take a sample, which this round cannot: it would count as failed.
        _ = stallInSleep(100)
        let before = test.ledger.snapshot.captureFailures
        test.round.pause(nil, at: .now)
        var states: [StallState] = []
        for case .ended(_, _, _, let state) in test.takeNotices() { states.append(state) }
        #expect(states == [.abandoned])
        #expect(test.ledger.snapshot.captureFailures == before)
        crew.release(1)
        test.round.finish()
    }

    @Test("Of a pool of hundreds, the first 64 workers and their number are reported")
    func manyWorkers() throws {
        var test = RoundUnderTest()
        let pool = TaskPoolHeartbeat(label: "wide", width: 300)
        test.watch(pool, number: 1, rule: quick)
        let jobs = (0..<300).map { _ in pool.willRun() }
        let stall = try began(&test)
        let found = try #require(stall.pool)
        #expect((found.workers.count, found.running, found.width) == (PoolObservation.workerLimit, 300, 300))
        #expect(found.waiting == nil, "nobody told of jobs that wait")
        for job in jobs { pool.didRun(job) }
        test.round.finish()
    }

    @Test("Two pools starve at once, each with its own stall; when a pool ends, its stall ends")
    func severalPools() {
        var test = RoundUnderTest()
        let pools = ["a", "b"].map { TaskPoolHeartbeat(label: $0, width: 1) }
        for (number, pool) in pools.enumerated() { test.watch(pool, number: number + 1, rule: quick) }
        let jobs = pools.map { $0.willRun() }
        var stalls: [String: Int] = [:]
        let both: Bool? = look(&test) { notice in
            if case .began(let stall) = notice { stalls[stall.watch.name.label] = stall.number }
            return stalls.count == 2 ? true : nil
        }
        #expect(both == true && Set(stalls.keys) == ["a", "b"])
        pools[0].end()
        let ended = look(&test) { if case .ended(let number, _, _, .recovered) = $0 { number } else { nil } }
        #expect(ended == stalls["a"])
        #expect(test.ledger.snapshot.watches.count == 1)
        for (pool, job) in zip(pools, jobs) { pool.didRun(job) }
        test.round.finish()
    }

    @Test("A long job is reported, but is no stall in the monitor's health; a starved pool is one", arguments: [1, 2])
    func health(jobs count: Int) throws {
        var test = RoundUnderTest()
        let pool = TaskPoolHeartbeat(label: "workers", width: 2)
        let thing = count == 1 ? WatchedThing.job(OldestJob(of: pool)) : .pool(pool)
        test.watch(thing, label: pool.label, number: 1, rule: quick)
        let jobs = (0..<count).map { _ in pool.willRun() }
        let stall = try began(&test)
        #expect(stall.kind == (count == 1 ? .longJob : .blocked))
        #expect(test.ledger.snapshot.ongoing.count == count - 1)
        for job in jobs { pool.didRun(job) }
        test.round.finish()
    }

    @Test("A pool's jobs and their lengths count once, however often it is watched; jobs before the watch do not count")
    func totals() {
        var test = RoundUnderTest()
        let pool = TaskPoolHeartbeat(label: "workers", width: 2)
        for _ in 0..<10 { pool.run {} }
        test.watch(pool, number: 1)
        for _ in 0..<30 { pool.run {} }
        test.round.remove(1)
        for _ in 0..<10 { pool.run {} }
        test.watch(pool, number: 2)
        for _ in 0..<5 { pool.run {} }
        let total = test.ledger.snapshot.totals(at: .now)[WatchName(type: .taskPool, label: "workers")]
        #expect(total?.turns == 35 && total?.lengths.count == 35)
        test.round.finish()
    }
}

/// Threads that stay in one job each until they are released.
private final class StandingCrew: Sendable {
    private let gate = DispatchSemaphore(value: 0)
    /// In the order in which their jobs began.
    let threadIDs: [Int32]

    init(_ count: Int, of pool: TaskPoolHeartbeat) {
        for number in 1...count {
            Thread.detachNewThread { [gate] in pool.run { gate.wait() } }
            waitUntil { pool.runningCount >= number && pool.runningJobs != nil }
        }
        threadIDs = (pool.runningJobs ?? []).map(\.threadID)
    }

    func release(_ count: Int) { for _ in 0..<count { gate.signal() } }
}

extension RoundUnderTest {
    fileprivate mutating func watch(_ pool: TaskPoolHeartbeat, number: Int, rule: StallRule = StallRule()) {
        watch(.pool(pool), label: pool.label, number: number, rule: rule)
    }

    fileprivate mutating func watch(_ thing: WatchedThing, label: String, number: Int, rule: StallRule) {
        let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
        precondition(thing.heartbeat.attach(wakeFlag))
        let identity = WatchIdentity(number: number, name: .init(type: .taskPool, label: label), since: .now)
        round.add(WatchedLoop(identity: identity, loop: thing, rule: rule, wakeFlag: wakeFlag))
    }
}
