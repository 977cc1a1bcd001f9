import Foundation
import Testing

@testable import StallReading
@testable import StallReports

/// Files that are opened because another file names them.
@Suite("Files named by live records", .timeLimit(.minutes(3)))
struct NamedFileTests {
    private let directory = TemporaryDirectory()

    @Test("no more is read than the limit allows, whatever size the file has by its status")
    func readLimit() throws {
        // A file of /proc has no size there.
        let maps = { OpenFile(owning: unsafe open("/proc/self/maps", O_RDONLY | O_CLOEXEC), path: "maps") }
        let size = try maps().readAll(limit: 16 << 20).count
        #expect(try maps().status().size == 0 && size > 1000)
        #expect(throws: ReportError(.tooLarge, path: "maps")) { _ = try maps().readAll(limit: 1000) }
    }

    @Test("only a counter of a control group is accepted, and only below the cgroup mount")
    func counters() {
        let good = [
            "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/a/b/memory.events",
            "/sys/fs/cgroup/memory/a/memory.oom_control",
        ]
        let bad = [
            "/sys/fs/cgroup/../../../etc/memory.events", "/sys/fs/cgroup/a/../../memory.events", "memory.events", "",
            "/tmp/memory.events", "/sys/fs/cgroup2/memory.events", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/",
            "/sys/fs/cgroup/memory.events\0", "/sys/fs/cgroup/memory.events/",
        ]
        #expect(good.allSatisfy(MemoryCounter.isCounter) && !bad.contains(where: MemoryCounter.isCounter))
    }

    @Test(
        "the calling process's own counter is read, and only by its inode",
        .enabled(if: MemoryCounter.current() != nil)
    )
    func ownCounter() throws {
        var counter = try #require(MemoryCounter.current())
        #expect(counter.read() != nil)
        counter.inode += 1
        #expect(counter.read() == nil)
    }

    @Test(
        "the path of a memory counter in a live record delays no reader and no writer",
        arguments: ["fifo", "link"]
    )
    func namedPipe(kind: String) async throws {
        try directory.store.prepare()
        let pipe = directory.root + "/fifo"
        try #require(unsafe mkfifo(pipe, 0o600) == 0)
        let named = kind == "link" ? directory.root + "/memory.events" : pipe
        if kind == "link" { try #require(unsafe symlink(pipe, named) == 0) }
        var status = stat()
        try #require(unsafe stat(pipe, &status) == 0)
        try leaveRecord(.init(path: named, inode: UInt64(status.st_ino)))
        let path = directory.path
        let finished = DispatchSemaphore(value: 0)
        let work = Thread {
            let causes = try? ReportReader(path: path).contents().reports.map(\.processEnd?.cause)
            let closed = try? ReportDirectory(path: path).closeTerminated().count
            #expect(causes == [.killedOrCrashed] && closed == 1)
            finished.signal()
        }
        work.start()
        let isDone = await Task.detached { finished.wait(timeout: .now() + 60) == .success }.value
        #expect(isDone, "somebody waits for the pipe's other end")
        guard !isDone else { return }
        // Releases blocked readers, repeatedly, because each opens the pipe again.
        await Task.detached {
            while finished.wait(timeout: .now() + 0.05) != .success {
                let end = unsafe open(pipe, O_WRONLY | O_NONBLOCK)
                if end >= 0 { close(end) }
            }
        }
        .value
    }

    @Test(
        "files left by another user are shown, but neither closed nor removed: they must not become ours",
        .enabled(if: geteuid() == 0)
    )
    func otherUsers() throws {
        let child = try ChildProcess()
        let report = Sample.ongoing(process: try child.identity())
        try directory.store.write(report)
        try leaveRecord(nil)
        child.killLeavingZombie()
        try give(to: 65534)
        let before = directory.names
        #expect(try directory.reader.contents().reports.map(\.state) == [.terminated, .terminated])
        #expect(try directory.store.closeTerminated().isEmpty)
        #expect(directory.names == before && before.count == 2)
        #expect(try ReportReader(path: directory.path, liveness: .blind).report(report.id).state == .ongoing)
        try give(to: geteuid())
        #expect(try directory.store.closeTerminated().count == 2)
    }

    private func give(to user: uid_t) throws {
        for name in directory.names { try #require(unsafe chown("\(directory.path)/\(name)", user, user) == 0) }
    }

    /// Leaves the live record of a process that died during a stall.
    private func leaveRecord(_ counter: MemoryCounter?) throws {
        let child = try ChildProcess()
        let writer = LiveRecord.Writer(
            host: .current(),
            service: nil,
            process: try child.identity(),
            startedAt: Sample.start,
            monitorVersion: "0.1.0",
            memory: counter
        )
        let file = try LiveRecordFile(
            in: directory.path,
            run: .make(),
            writer: writer,
            status: .init(updatedAt: Sample.start, memoryKills: 0)
        )
        let stall = LiveStall(
            report: .make(),
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            watched: .init(label: "main", turn: 1),
            watch: 1,
            startedAt: Sample.start,
            startedMonotonicNs: 1,
            detectedAt: Sample.start,
            lastSeenAt: Sample.start,
            lastSeenMonotonicNs: .max,
            durationNs: .max,
            durationMinNs: .max,
            durationMaxNs: .max
        )
        try file.write(stall, to: 0)
    }
}
