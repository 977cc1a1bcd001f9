import Foundation
import Glibc
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// Processes whose task pools really have no free worker.
@Suite(
    "A starved task pool",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(10))
)
struct StarvedPoolTests {
    private let directory = TemporaryDirectory(inMemory: true)

    private func play(_ scenes: String...) async throws -> PoolHostRun {
        let run = try await onThread { [directory] in try PoolHostRun(scenes, in: directory.path) }
        #expect(run.status == 0 && run.contents.failures.isEmpty)
        return run
    }

    /// What is true of each report of a scene in which all workers of a pool are in one job.
    private func check(
        _ report: StallReport,
        of label: String? = nil,
        _ run: PoolHostRun,
        _ scene: String,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let pool = try #require(report.pool, sourceLocation: sourceLocation)
        #expect(report.watched.type == .taskPool && report.kind == .blocked, sourceLocation: sourceLocation)
        #expect(report.watched.label == label ?? "medium-priority tasks", sourceLocation: sourceLocation)
        #expect(report.state == .recovered && report.durationNs >= 250_000_000, sourceLocation: sourceLocation)
        #expect(pool.running == pool.width && pool.workers.count == pool.width, sourceLocation: sourceLocation)
        #expect(Set(pool.workers.map(\.thread.id)).count == pool.width, sourceLocation: sourceLocation)
        for worker in pool.workers {
            let stack = try #require(worker.stack, "\(worker.error ?? "")", sourceLocation: sourceLocation)
            #expect(report.stacks.indices.contains(stack), sourceLocation: sourceLocation)
            #expect(worker.task != nil && worker.error == nil, sourceLocation: sourceLocation)
            #expect(worker.standingNs >= report.durationNs, "no worker was free", sourceLocation: sourceLocation)
            let callers = (report.stacks[stack].async?.frames ?? []).compactMap(\.function)
            #expect(callers.contains { $0.contains("handle") }, "\(callers)", sourceLocation: sourceLocation)
        }
        #expect(Set(pool.workers.compactMap(\.task)).count == pool.width, sourceLocation: sourceLocation)
        #expect(
            pool.workers.map(\.standingNs) == pool.workers.map(\.standingNs).sorted(by: >),
            sourceLocation: sourceLocation
        )
        #expect(report.cause.summary.hasPrefix("No worker was free: "), sourceLocation: sourceLocation)
        try checkTimes(of: report, run.jobs(scene), sourceLocation)
    }

    /// No worker was free from when the last one was taken until the first one was free again.
    private func checkTimes(
        of report: StallReport,
        _ jobs: [(start: Int64, end: Int64)],
        _ sourceLocation: SourceLocation
    ) throws {
        let width = try #require(report.pool?.width)
        let standing = jobs.filter { $0.end - $0.start >= 100_000_000 }
        try #require(standing.count >= width, sourceLocation: sourceLocation)
        // The job measures its times inside; the clocks are compared anew.
        let tolerance: Int64 = 1_000_000
        let (start, end) = (report.startedAt.nanosecondsSince1970, try #require(report.endedAt).nanosecondsSince1970)
        #expect(start <= standing.map(\.start).max()! + tolerance, sourceLocation: sourceLocation)
        #expect(start >= standing.map(\.start).min()! - 50_000_000, sourceLocation: sourceLocation)
        #expect(end >= standing.map(\.end).min()! - tolerance, sourceLocation: sourceLocation)
        #expect(report.durationMaxNs == nil, "begin and end are stamped", sourceLocation: sourceLocation)
    }

    @Test("Every worker computes, or sleeps, while jobs wait: one report each, with every worker at its function")
    func standing() async throws {
        let run = try await play("computing", "sleeping", "reading")
        let computing = try run.report("computing")
        try check(computing, run, "computing")
        let width = try #require(computing.pool?.width)
        #expect(computing.workers(at: "computeInAJob") == width && computing.pool?.atCulprit == width)
        #expect((computing.pool?.waiting ?? 0) >= 3)
        #expect(computing.culpritText.contains("compute"))

        let sleeping = try run.report("sleeping")
        try check(sleeping, run, "sleeping")
        #expect(sleeping.workers(at: "sleepInAJob") == width && sleeping.culpritText.contains("sleepInAJob"))
        #expect(sleeping.cause.verdict == .blocked && sleeping.cause.systemCall?.name == "clock_nanosleep")
        #expect((sleeping.pool?.waiting ?? 0) >= 3)

        let reading = try run.report("reading")
        try check(reading, run, "reading")
        #expect(reading.workers(at: "readInAJob") == width && reading.culpritText.contains("readInAJob"))
        #expect(reading.pool?.workers.allSatisfy { $0.verdict == .blocked } == true)
        #expect(reading.cause.systemCall?.name == "read" && reading.pool?.waiting == 0)
        #expect(reading.cause.summary.contains("no other job waited"))
        #expect(Set([computing, sleeping, reading].map(\.fingerprint)).count == 3)
    }

    @Test(
        "If every worker waits for one lock, its owner, a worker or another thread, is named with its stack"
    )
    func locked() async throws {
        let run = try await play("locked", "locked-by-worker")
        let foreign = try run.report("locked")
        try check(foreign, run, "locked")
        let pool = try #require(foreign.pool)
        #expect(foreign.workers(at: "waitForTheLock") == pool.width && pool.atCulprit == pool.width)
        #expect(pool.workers.allSatisfy { $0.lock?.kind == .mutex && $0.lock?.owner?.name == "holder" })
        #expect(Set(pool.workers.compactMap(\.lock?.address)).count == 1)
        let owners = foreign.stacks.filter { $0.role == .lockOwner }
        #expect(owners.count == 1 && owners[0].frames.contains { $0.function?.contains("holdAsForeigner") == true })
        #expect(foreign.cause.lock?.owner?.name == "holder")

        let own = try run.report("locked-by-worker")
        try check(own, run, "locked-by-worker")
        let workers = try #require(own.pool?.workers)
        let holder = try #require(workers.first { $0.lock == nil })
        #expect(workers.count { $0.lock != nil } == workers.count - 1)
        #expect(workers.allSatisfy { $0.lock == nil || $0.lock?.owner?.id == holder.thread.id })
        #expect(own.culpritText.contains("sleepWithTheLock") && own.thread.id == holder.thread.id)
        #expect(own.pool?.atCulprit == workers.count, "who waits for the culprit is told among those at it")
    }

    @Test("Workers that wait for each other are a deadlock, and stay one report while they are watched")
    func deadlock() async throws {
        let run = try await play("deadlock")
        let report = try run.report("deadlock")
        let pool = try #require(report.pool)
        #expect(report.state == .abandoned && report.watched.label == "own executor")
        #expect(report.cause.verdict == .deadlock && report.cause.cycle?.count == 2)
        #expect(pool.workers.map(\.verdict) == [.deadlock, .deadlock])
        #expect(Set(pool.workers.compactMap(\.lock?.owner?.id)) == Set(pool.workers.map(\.thread.id)))
        #expect(report.workers(at: "lockBoth") == 2 && report.culpritText.contains("lockBoth"))
    }

    @Test("The culprit is the function that most workers are in")
    func most() async throws {
        let run = try await play("most")
        let report = try run.report("most")
        try check(report, of: "four workers", run, "most")
        #expect(report.culpritText.contains("sleepInAJob") && report.pool?.atCulprit == 3)
        #expect(report.workers(at: "computeInAJob") == 1 && report.workers(at: "sleepInAJob") == 3)
        #expect(report.cause.summary.contains("4 were in one job each, 3 of them in this function"))
    }

    @Test("The server's own executor, and two pools at once: one report each")
    func executors() async throws {
        let run = try await play("executor", "two-pools")
        try check(run.report("executor"), of: "own executor", run, "executor")
        let both = run.reports("two-pools")
        #expect(both.map(\.watched.label).sorted() == ["medium-priority tasks", "own executor"])
        for report in both {
            try check(report, of: report.watched.label, run, "two-pools")
            let ids = Set((report.pool?.workers ?? []).map(\.thread.id))
            let others = both.filter { $0.id != report.id }.flatMap { $0.pool?.workers ?? [] }.map(\.thread.id)
            #expect(ids.isDisjoint(with: others))
        }
        #expect(run.contents.runs.first?.stalls == ["blocked": 3])
    }

    @Test("It ends when a worker is free again, however long the others' jobs continue")
    func oneFreed() async throws {
        let run = try await play("one-freed")
        let report = try run.report("one-freed")
        let end = try #require(report.endedAt).nanosecondsSince1970
        let ends = run.jobs("one-freed").map(\.end).sorted()
        try #require(ends.count == 2)
        #expect(end >= ends[0] - 1_000_000 && end < ends[1])
    }

    @Test("One long job beside free workers, short jobs, a few medium ones, suspended tasks, or none: no stall")
    func notStarved() async throws {
        let run = try await play("one-long", "short", "middling", "suspended", "idle")
        #expect(run.contents.reports.isEmpty)
        #expect(run.contents.runs.map(\.stalls) == [[:]] && run.contents.runs.first?.suppressed == 0)
        #expect(run.jobs("one-long").count == 1 && run.jobs("short").count == 60 && run.jobs("middling").count == 4)
        let pool = try #require(run.contents.runs.first?.watched.first { $0.label == "medium-priority tasks" })
        #expect(pool.type == .taskPool && (pool.turns ?? 0) >= 65)
        let lengths = try #require(pool.turnDurations)
        #expect(lengths.count >= 65 && lengths.maxNs >= 700_000_000 && lengths.p50Ns >= 20_000)
        let counts = try #require(pool.jobLengths)
        #expect(counts.reduce(0) { $0 + $1.count } == lengths.count)
        #expect(counts.compactMap(\.upToNs) == counts.compactMap(\.upToNs).sorted())
        // The jobs of 150 ms and 700 ms; those of 20 ms.
        #expect(counts.first { $0.upToNs == 1_000_000_000 }.map { $0.count >= 5 } == true)
        #expect(counts.first { $0.upToNs == 100_000_000 }.map { $0.count >= 30 } == true)
    }

    @Test("One long job is reported only if configured; the longest job's function is in the run record")
    func longJobs() async throws {
        let asked = try await play("long=300", "resumed", "short")
        let report = try asked.report("resumed")
        #expect(report.kind == .longJob && report.rule.name == .longJob && report.rule.ticks == 6)
        #expect(report.watched.type == .taskPool && report.watched.label == "medium-priority tasks, long jobs")
        #expect(report.state == .recovered && report.culpritText.contains("sleepFor"))
        #expect(report.pool?.workers.count == 1 && report.pool?.workers.first?.thread.id == report.thread.id)
        #expect(report.cause.summary.hasPrefix("One job was in this function, while "))
        let run = try #require(asked.contents.runs.first)
        #expect(run.stalls == ["long_job": 1])
        let pool = try #require(run.watched.first { $0.label == "medium-priority tasks" })
        #expect(pool.longestJob?.contains("goOn") == true, "\(pool.longestJob ?? "")")
        #expect(run.watched.first { $0.label == "medium-priority tasks, long jobs" }?.turnDurations == nil)
        // A job is counted when it has ended, shortly after its scene: another scene follows.
        let unasked = try await play("resumed", "short")
        #expect(unasked.reports("resumed").isEmpty)
        #expect(unasked.contents.runs.last?.watched.contains { $0.longestJob?.contains("goOn") == true } == true)
    }

    @Test("If the process is killed during the stall, its report says so, with every worker")
    func killed() async throws {
        let path = directory.path
        let began = try await onThread {
            let process = Process()
            process.executableURL = PoolHostRun.executable
            process.arguments = [path, "forever"]
            let output = Pipe()
            process.standardOutput = output
            try process.run()
            var text = ""
            while !text.contains("\nbegan "), case let data = output.fileHandleForReading.availableData, !data.isEmpty {
                text += String(decoding: data, as: UTF8.self)
            }
            usleep(300_000)
            process.killIfRunning()
            process.waitUntilExit()
            return text
        }
        #expect(began.contains("began "))
        let contents = try ReportReader(path: path).contents()
        let report = try #require(contents.reports.first)
        #expect(contents.reports.count == 1 && contents.failures.isEmpty)
        #expect(report.state == .terminated && report.processEnd?.cause == .killedOrCrashed && report.endedAt == nil)
        #expect(report.watched.type == .taskPool && report.pool?.workers.count == report.pool?.width)
        #expect(report.workers(at: "sleepFor") == report.pool?.width)
        #expect(contents.runs.map(\.state) == [.terminated])
    }
}
