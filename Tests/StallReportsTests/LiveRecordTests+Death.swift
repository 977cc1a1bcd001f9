import Glibc
import TestSupport
import Testing

@testable import StallReading
@testable import StallReports

// Processes that died: what they left, what the next start makes of it, and how they ended.

extension LiveRecordTests {
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

    @Test("an unreported stall of another process is of the service that the run record names, not of its watcher")
    func orphanOfWatcher() throws {
        var file: LiveRecordFile? = try makeFile()
        var known = stall()
        known.processID = 42
        try file?.write(known, to: 5)
        file = nil
        let nameless = try #require(try directory.reader.contents().reports.first)
        #expect(nameless.service == nil && nameless.process.pid == 42 && nameless.state == .abandoned)
        #expect(nameless.cause.summary.hasPrefix("The watching process ended before "))
        var record = Sample.run(id: run)
        record.targets = [.init(pid: 42)]
        record.watched = [.init(type: known.watched.type, label: known.watched.label, watchedNs: 1)]
        record.watched[0].service = "python3"
        try directory.store.write(record)
        let read = try #require(try directory.reader.contents().reports.first)
        #expect(read.service == .init(name: "python3"))
        #expect(try directory.store.closeTerminated() == [read])
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
}
