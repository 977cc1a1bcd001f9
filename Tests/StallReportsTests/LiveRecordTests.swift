import Glibc
import TestSupport
import Testing

@testable import StallReading
@testable import StallReports

@Suite("Live record", .timeLimit(.minutes(10)))
struct LiveRecordTests {
    private let directory = TemporaryDirectory()
    private let run = ULID.make()

    private func writer(_ process: ProcessIdentity = .current()) -> LiveRecord.Writer {
        .init(
            host: .current(),
            service: .init(name: "shop"),
            process: process,
            startedAt: Sample.start,
            monitorVersion: "0.1.0",
            memory: nil
        )
    }

    private func makeFile(_ process: ProcessIdentity = .current()) throws -> LiveRecordFile {
        try LiveRecordFile(
            in: directory.path,
            run: run,
            writer: writer(process),
            status: .init(updatedAt: Sample.start)
        )
    }

    private func stall(_ report: ULID = .make(), _ state: StallState = .ongoing, length: Int64 = 2_500_000_000)
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

    private func processes() throws -> [LiveProcess] { try directory.reader.liveProcesses().processes }

    private var path: String { "\(directory.path)/live-\(run).bin" }

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

    @Test("a stall that ended before its process died is recovered, whatever its report says")
    func overBeforeDeath() throws {
        var report = Sample.ongoing()
        report.run = run
        try directory.store.write(report)
        var file: LiveRecordFile? = try makeFile()
        try file?.write(stall(report.id, .recovered), to: 0)
        #expect(try directory.reader.report(report.id).state == .ongoing)
        file = nil
        let read = try directory.reader.report(report.id)
        #expect(read.state == .recovered && read.durationMinNs == nil && read.processEnd == nil)
        #expect(read.endedAt == read.startedAt.advanced(byNanoseconds: 2_500_000_000))
    }

    @Test("an unreported stall is known from the live record, and the next start writes its report")
    func orphan() throws {
        var file: LiveRecordFile? = try makeFile()
        let known = stall()
        try file?.write(known, to: 5)
        #expect(try directory.reader.contents().reports.isEmpty, "its process may still report it")
        file = nil
        let read = try #require(try directory.reader.contents().reports.first)
        #expect(read.id == known.report && read.state == .terminated && read.run == run)
        #expect(read.watched == known.watched && read.thread.id == 4711 && read.cause.systemCall?.number == 230)
        #expect(try directory.reader.report(known.report) == read)
        #expect(try directory.store.closeTerminated() == [read])
        #expect(
            directory.names
                == [ReportFileName(.run, run), ReportFileName(.stall, known.report)].map(\.description).sorted()
        )
        #expect(try directory.reader.contents().reports == [read])
        #expect(try directory.store.closeTerminated().isEmpty)
    }

    @Test(
        "a run killed before it wrote a record gets one when its stalls are closed; an existing one stays"
    )
    func runWithoutRecord() throws {
        var file: LiveRecordFile? = try makeFile()
        let known = stall()
        try file?.write(known, to: 0)
        try directory.store.closeTerminated()
        #expect(try directory.reader.contents().runs.isEmpty, "its process may still write it")
        file = nil
        try directory.store.closeTerminated()
        let record = try #require(try directory.reader.contents().runs.first)
        #expect(record.id == run && record.state == .terminated && record.processEnd != nil)
        #expect(record.stalls == [known.rule.name.rawValue: 1])
        #expect(record.watched.map(\.label) == [known.watched.label])
        #expect(record.watched.map(\.watchedNs) == [known.durationNs])
        var other = record
        other.ticks = 99
        try directory.store.write(other)
        file = try makeFile()
        try file?.write(known, to: 0)
        file = nil
        try directory.store.closeTerminated()
        #expect(try directory.reader.contents().runs.map(\.ticks) == [99])
    }

    @Test("a report that cannot be replaced keeps no other from being closed; it is named, and its live record stays")
    func irreplaceable() throws {
        var large = Sample.ongoing(id: ULID(rawValue: 1))
        (large.run, large.metadata) = (run, ["filler": ""])
        // The largest that can be written. Closing it makes it longer.
        let room = try ReportReader.maximumFileSize - large.json().count
        large.metadata = ["filler": String(repeating: "x", count: room)]
        try directory.store.write(large)
        var file: LiveRecordFile? = try makeFile()
        let orphan = stall()
        try file?.write(stall(large.id), to: 0)
        try file?.write(orphan, to: 1)
        file = nil
        let name = ReportFileName(.stall, large.id)
        let failure = ReportError(.tooLarge, path: directory.file(name), detail: "\(name) cannot be closed")
        for _ in 0..<2 {
            #expect(throws: failure) { try directory.store.closeTerminated() }
            let written = try ReportReader(path: directory.path, liveness: .blind).contents()
            #expect(written.reports.map(\.id) == [large.id, orphan.report])
            #expect(written.reports.map(\.state) == [.ongoing, .terminated])
            #expect(written.runs.map(\.state) == [.terminated])
            #expect(directory.names.contains("live-\(run).bin"))
        }
    }

    @Test("a process that dies while another start closes what others left keeps its live record for the next one")
    func deathWhileClosing() throws {
        var file: LiveRecordFile? = try makeFile()
        try file?.write(stall(), to: 0)
        let documents = StoredDocuments(path: directory.path)
        let dead = try directory.store.deadProcesses(documents)
        #expect(dead.isEmpty)
        file = nil
        #expect(try directory.store.closeReports(of: dead, documents).isEmpty)
        #expect(directory.names == ["live-\(run).bin"])
        #expect(try directory.store.closeTerminated().count == 1)
    }

    @Test("a report that a process wrote before it died is not replaced by what its live record has of the stall")
    func reportBeforeDeath() throws {
        var report = Sample.recovered()
        report.run = run
        var file: LiveRecordFile? = try makeFile()
        try file?.write(stall(report.id), to: 0)
        let documents = StoredDocuments(path: directory.path)
        file = nil
        let dead = try directory.store.deadProcesses(documents)
        #expect(dead.map(\.record.run) == [run])
        try directory.store.write(report)
        #expect(try directory.store.closeReports(of: dead, documents).isEmpty)
        #expect(try directory.reader.report(report.id) == report)
    }

    @Test("a truncated or forged record is an error or ignored, hides no report, and does not affect readers")
    func hostileRecords() throws {
        let report = Sample.recovered()
        try directory.store.write(report)
        let file = try makeFile()
        try file.write(stall(), to: 0)
        let whole = try #require(bytes(of: path))
        file.remove()
        var random = SplitMix64(seed: 1)
        for round in 0..<90 {
            var bytes = whole
            if round % 3 == 0 { bytes = Array(bytes.prefix(Int(random.next() % UInt64(whole.count)))) }
            for _ in 0..<Int(random.next() % 8) where !bytes.isEmpty {
                bytes[Int(random.next() % UInt64(min(bytes.count, 5000)))] = UInt8(truncatingIfNeeded: random.next())
            }
            directory.plant(bytes, as: "live-\(run).bin")
            let contents = try directory.reader.contents()
            #expect(contents.reports.contains(report) && contents.failures.count <= 1)
        }
        var other = whole
        other[8] = 99
        directory.plant(other, as: "live-\(run).bin")
        #expect(try directory.reader.liveProcesses().failures.map(\.code) == [.unsupportedSchema])
        directory.plant("x".utf8, as: "live-\(run).bin")
        #expect(try directory.reader.contents().failures.isEmpty, "torn, and nobody writes it")
        try directory.store.closeTerminated()
        #expect(directory.names == [ReportFileName(.stall, report.id).description])
    }

    @Test(
        "a stall with any changed byte is torn and left out; so is the record if its status or head has one"
    )
    func tornBlocks() throws {
        let file = try makeFile()
        let (first, second) = (stall(), stall())
        try file.write(first, to: 0)
        try file.write(second, to: 1)
        let whole = try #require(bytes(of: path))
        file.remove()
        func record(flipping offset: Int) throws -> LiveRecord {
            var bytes = whole
            bytes[offset] ^= 1
            return try LiveRecordLayout.record(from: bytes)
        }
        for offset in 0..<LiveRecordLayout.placeSize {
            let read = try record(flipping: LiveRecordLayout.offset(ofPlace: 0) + offset)
            #expect(read.tornStalls == 1 && read.stalls == [second], "byte \(offset) of a place")
        }
        for offset in LiveRecordLayout.statusRange {
            #expect(throws: ReportError.self, "byte \(offset)") { try record(flipping: offset) }
        }
        for offset in [24, 40, 60, 504, 512, 600, 4095] {
            #expect(throws: ReportError.self, "byte \(offset)") { try record(flipping: offset) }
        }
    }

    @Test("an intact stall with a negative length is left out", arguments: 0..<3)
    func negativeLength(index: Int) throws {
        let length = [\LiveStall.durationNs, \.durationMinNs, \.durationMaxNs][index]
        let file = try makeFile()
        var (wrong, right) = (stall(), stall())
        wrong[keyPath: length] = -1
        right[keyPath: length] = 0
        try file.write(wrong, to: 0)
        try file.write(right, to: 1)
        let read = try #require(try processes().first)
        #expect(read.record.stalls == [right] && read.record.tornStalls == 1)
    }

    @Test("pipes and links under a live record's name are not opened, and a foreign record is refused")
    func specialFiles() throws {
        let file = try makeFile()
        let (pipe, link, foreign) = (ULID.make(), ULID.make(), ULID.make())
        try #require(unsafe mkfifo("\(directory.path)/live-\(pipe).bin", 0o600) == 0)
        try #require(unsafe symlink("/etc/passwd", "\(directory.path)/live-\(link).bin") == 0)
        directory.plant(try #require(bytes(of: path)), as: "live-\(foreign).bin")
        let codes = try directory.reader.liveProcesses().failures.map(\.code)
        #expect(codes == [.notAFile, .notAFile, .malformed])
        #expect(try processes().count == 1)
        file.remove()
    }

    @Test("a file that others truncate, remove or close is an error, and no other file is written to")
    func harmlessWriter() throws {
        var file: LiveRecordFile? = try makeFile()
        try #require(unsafe truncate(path, 0) == 0)
        try file?.write(stall(), to: 0)
        TemporaryDirectory.removeTree(directory.path)
        #expect(throws: ReportError.self) { try file?.write(stall(), to: 0) }
        // The number now belongs to another file, as after a daemon's closefrom.
        let other = unsafe open("\(directory.root)/precious", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        let number: Int32? = file?.descriptor
        let descriptor = try #require(number)
        try #require(dup2(other, descriptor) == descriptor)
        #expect(throws: ReportError.self) { try file?.write(.init(updatedAt: Sample.start)) }
        file = nil
        #expect(bytes(of: "\(directory.root)/precious") == [])
        #expect(fcntl(descriptor, F_GETFD) >= 0, "it is not ours to close")
        close(descriptor)
        close(other)
    }

    @Test(
        "in a directory that was renamed, a record is not written any more, and is removed",
        arguments: [false, true]
    )
    func renamedDirectory(atEnd: Bool) throws {
        var file: LiveRecordFile? = try makeFile()
        let moved = directory.root + "/moved"
        try #require(unsafe rename(directory.path, moved) == 0)
        #expect(TemporaryDirectory.names(in: moved).count == 1)
        #expect(throws: ReportError.self) { try file?.write(stall(), to: 0) }
        if atEnd { file?.remove() } else { file?.removeIfMoved() }
        #expect(TemporaryDirectory.names(in: moved).isEmpty)
        file = nil
    }

    @Test(
        "how a process ended is decided by the strongest sign",
        arguments: [
            (ProcessEnd.Clues(isOtherBoot: true, exitStatus: 256 + 7), ProcessEnd.Cause.exit),
            (.init(isOtherBoot: true, memoryKillsBefore: 0, memoryKillsNow: 1), .reboot),
            (.init(isNumberAlive: true), .exec),
            (.init(memoryKillsBefore: 3, memoryKillsNow: 4), .outOfMemory),
            (.init(memoryKillsBefore: 4, memoryKillsNow: 4), .killedOrCrashed),
            (.init(memoryKillsBefore: 4, memoryKillsNow: nil), .killedOrCrashed),
            (.init(memoryKillsBefore: nil, memoryKillsNow: 4), .killedOrCrashed),
        ]
    )
    func ends(_ clues: ProcessEnd.Clues, _ cause: ProcessEnd.Cause) {
        let end = ProcessEnd(clues)
        #expect(end.cause == cause)
        #expect(end.exitStatus == (cause == .exit ? 7 : nil))
    }

    @Test("the counter of memory kills is found for both versions of cgroups")
    func memoryCounter() {
        #expect(
            MemoryCounter.paths(of: "4:memory:/a/b\n0::/c") == [
                "/sys/fs/cgroup/memory/a/b/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control",
                "/sys/fs/cgroup/c/memory.events", "/sys/fs/cgroup/memory.events",
            ]
        )
        #expect(MemoryCounter.paths(of: "5:cpu,cpuacct:/a\nnonsense\n1:name=systemd:/x").isEmpty)
        #expect(MemoryCounter.count(in: "low 0\noom 3\noom_kill 2\noom_group_kill 0") == 2)
        #expect(MemoryCounter.count(in: "oom_kill_disable 0\nunder_oom 0\n") == nil)
    }

    @Test("all lines of the control groups are read, though the kernel returns a page at a time")
    func manyControlGroups() throws {
        let group = String(repeating: "/kubepods-burstable.slice", count: 20)
        let text = (0...12).reversed().map { "\($0):\($0 == 0 ? "" : "name=hierarchy\($0)"):\(group)\n" }.joined()
        try #require(text.utf8.count > 4096)
        try #require(unsafe mkdir(directory.path, 0o700) == 0)
        directory.plant(text.utf8, as: "cgroup")
        #expect(readControlGroups(in: directory.path) == text)
        #expect(readControlGroups(in: directory.root) == nil)
    }

    private func bytes(of path: String) -> [UInt8]? {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        return try? OpenFile(owning: descriptor, path: path).readAll(limit: 1 << 20)
    }
}
