import TestSupport
import Testing

@testable import StallReading
@testable import StallReports

@Suite("Live record", .timeLimit(.minutes(10)))
struct LiveRecordTests {
    let directory = TemporaryDirectory()
    let run = ULID.make()

    func writer(_ process: ProcessIdentity = .current()) -> LiveRecord.Writer {
        .init(
            host: .current(),
            service: .init(name: "shop"),
            process: process,
            startedAt: Sample.start,
            monitorVersion: "0.1.0",
            memory: nil
        )
    }

    func makeFile(_ process: ProcessIdentity = .current()) throws -> LiveRecordFile {
        try LiveRecordFile(
            in: directory.path,
            run: run,
            writer: writer(process),
            status: .init(updatedAt: Sample.start)
        )
    }

    func stall(_ report: ULID = .make(), _ state: StallState = .ongoing, length: Int64 = 2_500_000_000)
        -> LiveStall
    {
        LiveStall(
            report: report,
            state: state,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            watched: .init(label: "main", activity: "before_sources", turn: 12),
            watch: 3,
            threadID: 4711,
            systemCall: 230,
            startedAt: Sample.start,
            startedMonotonicNs: 5_000_000_000,
            detectedAt: Sample.start.advanced(byNanoseconds: 250_000_000),
            lastSeenAt: Sample.start.advanced(byNanoseconds: length),
            lastSeenMonotonicNs: 5_000_000_000 + UInt64(length),
            durationNs: length,
            durationMinNs: length,
            durationMaxNs: length
        )
    }

    func processes() throws -> [LiveProcess] { try directory.reader.liveProcesses().processes }

    var path: String { "\(directory.path)/live-\(run).bin" }

    @Test("what is written is read: the writer, its status, each stall in its slot; a freed slot is empty")
    func roundTrip() throws {
        let writer = writer()
        let file = try makeFile(writer.process)
        let (first, second) = (stall(), stall(.make(), .recovered))
        try file.write(first, to: 0)
        try file.write(stall(), to: 1)
        try file.write(second, to: LiveRecordFile.places.upperBound - 1)
        try file.write(nil, to: 1)
        let status = LiveRecord.Status(
            updatedAt: Sample.start.advanced(byNanoseconds: 1),
            lastLookMonotonicNs: 7,
            watched: 3,
            unplaced: 2,
            exitStatus: -1,
            memoryKills: 9
        )
        try file.write(status)
        let read = try #require(try processes().first)
        #expect(read.record.run == run && read.record.status == status)
        #expect(read.record.writer == writer)
        #expect(read.record.stalls == [first, second] && read.record.tornStalls == 0)
        #expect(directory.mode(of: path) == 0o600)
        #expect(directory.names == ["live-\(run).bin"])
        file.remove()
        #expect(directory.names.isEmpty)
    }

    @Test("the rule of a row of turns is read with their number")
    func ruleForTurns() throws {
        let file = try makeFile()
        var row = stall()
        row.rule = .init(name: .repeated, tickNs: 50_000_000, ticks: 1, turns: 5)
        try file.write(row, to: 0)
        #expect(try processes().first?.record.stalls == [row])
    }

    @Test("a stall of a task pool, which has no turns, is read without one")
    func poolWithoutTurn() throws {
        let file = try makeFile()
        var pool = stall()
        pool.watched = .init(type: .taskPool, label: "workers")
        try file.write(pool, to: 0)
        #expect(try processes().first?.record.stalls == [pool])
    }

    @Test("a label that is too long is cut between characters; a path that is too long is left out")
    func longTexts() throws {
        var process = ProcessIdentity.current()
        process.executable = "/" + String(repeating: "x", count: 5000)
        let file = try makeFile(process)
        var long = stall()
        long.watched.label = String(repeating: "ü", count: 40) + "x"
        try file.write(long, to: 0)
        let read = try #require(try processes().first)
        #expect(read.record.stalls.first?.watched.label == String(repeating: "ü", count: 28))
        #expect(read.record.writer.process.executable == nil && read.record.writer.process.pid == process.pid)
    }

    @Test("the lock shows whether a process is alive if its id cannot; without a lock, the id does")
    func lockTellsLife() throws {
        var elsewhere = ProcessIdentity.current()
        elsewhere.pidNamespace = 1
        var file: LiveRecordFile? = try makeFile(elsewhere)
        let liveness = ProcessLiveness()
        #expect(liveness.status(of: elsewhere, on: .current()) == .unknown)
        #expect(try processes().map { $0.status(by: liveness) } == [.alive])
        let isLocked: Bool? = file?.isLocked
        #expect(isLocked == true)
        file = nil
        let dead = try #require(try processes().first)
        #expect(dead.status(by: liveness) == .dead)
        #expect(dead.status(by: .blind) == .unknown)
        var unlocked = dead
        unlocked.holdsLock = nil
        #expect(unlocked.status(by: liveness) == .unknown)
        unlocked.record.writer.process = .current()
        #expect(unlocked.status(by: liveness) == .alive)
    }

    @Test("a killed process is dead, even if its child still holds the lock")
    func lockOutlivesProcess() throws {
        let child = try ChildProcess()
        let file = try makeFile(child.identity())
        let process = try #require(try processes().first)
        #expect(process.status(by: ProcessLiveness()) == .alive)
        child.killLeavingZombie()
        #expect(process.status(by: ProcessLiveness()) == .dead)
        file.remove()
    }

    @Test("a running process's report is as long as its live record says; a dead one's ends there")
    func reportGrows() throws {
        let report = Sample.ongoing()
        var written = report
        (written.run, written.severity) = (run, .warning)
        try directory.store.write(written)
        var file: LiveRecordFile? = try makeFile()
        try file?.write(stall(report.id), to: 0)
        let growing = try directory.reader.report(report.id)
        #expect(growing.state == .ongoing && growing.durationNs == 2_500_000_000 && growing.severity == .error)
        file = nil
        let dead = try directory.reader.report(report.id)
        #expect(dead.state == .terminated && dead.durationNs == 2_500_000_000 && dead.durationMinNs == 2_500_000_000)
        #expect(dead.processEnd?.cause == .exec, "this process lives, without the lock")
        #expect(dead.processEnd?.lastSeenAt == Sample.start.advanced(byNanoseconds: 2_500_000_000))
        #expect(dead.cause == written.cause && dead.stacks == written.stacks)
    }

    @Test("a follower returns a stall again only when it grows; its end comes with the file")
    func followsGrowth() throws {
        var report = Sample.ongoing()
        report.run = run
        try directory.store.write(report)
        let file = try makeFile()
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: .seconds(30)) == .directoryAppeared)
        #expect(try follower.next(timeout: .seconds(30)) == .report(report))
        try file.write(stall(report.id), to: 0)
        guard case .grown(let grown) = try follower.next(timeout: .seconds(30)) else {
            Issue.record("no growth")
            return
        }
        #expect(grown.state == .ongoing && grown.durationNs == 2_500_000_000 && grown.cause == report.cause)
        // The follower polls once a second.
        #expect(try follower.next(timeout: .milliseconds(1_500)) == nil)
        try file.write(stall(report.id, .recovered, length: 2_600_000_000), to: 0)
        (report.state, report.durationNs) = (.recovered, 2_600_000_000)
        report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
        try directory.store.write(report)
        #expect(try follower.next(timeout: .seconds(30)) == .report(report))
        file.remove()
    }

    @Test("from now on: a stall that is ongoing by the live record is returned at once, and as it grows")
    func followsOngoing() throws {
        var report = Sample.ongoing()
        report.run = run
        try directory.store.write(report)
        try directory.store.write(Sample.recovered())
        let file = try makeFile()
        try file.write(stall(report.id), to: 0)
        var follower = try ReportFollower(path: directory.path, includesPast: false)
        #expect(try follower.next(timeout: .seconds(30)) == .directoryAppeared)
        guard case .report(let first) = try follower.next(timeout: .seconds(30)) else {
            Issue.record("not told")
            return
        }
        #expect(first.id == report.id && first.durationNs == 2_500_000_000)
        #expect(try follower.next(timeout: .zero) == nil)
        try file.write(stall(report.id, length: 2_600_000_000), to: 0)
        guard case .grown(let grown) = try follower.next(timeout: .seconds(30)) else {
            Issue.record("no growth")
            return
        }
        #expect(grown.durationNs == 2_600_000_000)
        file.remove()
    }
}
