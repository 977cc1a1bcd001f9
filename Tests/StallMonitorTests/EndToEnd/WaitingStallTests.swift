import Dispatch
import Foundation
import Glibc
import RunLoopKit
import StackCapture
import StallReports
import TestSupport
import Testing

@testable import StallDiagnosis
@testable import StallMonitor

/// Threads that really wait, in the kernel's calls.
@Suite(
    "What a waiting thread waits for",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct WaitingStallTests {
    private let directory = TemporaryDirectory()

    /// The report of a stall by `work`, closed. Calls `whenBegun` once the stall is reported.
    private func report(
        _ change: (inout StallMonitor.Configuration) -> Void = { _ in },
        whenBegun: @escaping @Sendable () -> Void = {},
        of work: @escaping @Sendable () -> Void
    ) async throws -> StallReport {
        var configuration = StallMonitor.Configuration(directory: directory.path + "/reports", repeats: .everyStall)
        configuration.ownCode = OwnCode(modules: ["StallMonitorTests"])
        // A mount or a freeze by another program may hold the kernel's tables for longer than a server waits.
        configuration.lookupPatience = .seconds(60)
        change(&configuration)
        // Checked on the test's own task: an expectation on another thread would not belong to the test.
        let report = try await onThread { [configuration] in
            let (log, worker) = (EventLog(), StallingLoop())
            let monitor = StallMonitor.start(configuration, watching: [worker.loop]) { event in
                if case .began = event { whenBegun() }
                log.handler(event)
            }
            worker.perform(work)
            let isReported = log.wait { !$0.ended.isEmpty }
            monitor.stop()
            worker.end()
            return isReported ? log.ended.first : nil
        }
        return try #require(report, "the stall was not reported")
    }

    private func argument(_ name: String, _ report: StallReport) -> String? {
        report.cause.systemCall?.decoded?.first { $0.name == name }?.value
    }

    @Test("read(2) on a pipe: the descriptor is reported as a pipe, with the size")
    func pipe() async throws {
        let report = try await report { _ = stallInRead(700) }
        #expect(report.cause.verdict == .blocked && report.cause.systemCall?.name == "read")
        #expect(argument("count", report) == "1")
        #expect(report.cause.systemCall?.descriptors?.first?.kind == .pipe)
        #expect(report.cause.summary.hasPrefix("The thread waited in read(2) on descriptor"))
        #expect(report.cause.evidence?.sampled?.calling == 100)
    }

    @Test("A sleep is reported with its length")
    func sleep() async throws {
        let report = try await report { _ = stallInSleep(700) }
        #expect(report.cause.verdict == .blocked && argument("request", report) == "700ms", "\(report.cause)")
        #expect(report.cause.summary.hasSuffix(", for 700ms."))
    }

    @Test("A TCP peer that does not answer is reported with both addresses and the connection's state")
    func silentPeer() async throws {
        let pair = try #require(TCPPair())
        let report = try await report { _ = pair.stallInReceive(700) }
        let socket = try #require(report.cause.systemCall?.descriptors?.first?.socket, "\(report.cause)")
        #expect(report.cause.verdict == .blocked && report.cause.systemCall?.name == "recvfrom")
        #expect(socket.family == "tcp" && socket.state == "established")
        #expect(socket.local?.hasPrefix("127.0.0.1:") == true && socket.peer == "127.0.0.1:\(pair.port)")
        #expect(report.cause.summary.contains("→ 127.0.0.1:\(pair.port), established"))
    }

    @Test("A connection that nobody accepts is reported with its destination address")
    func connect() async throws {
        let listener = try #require(FullListener())
        let report = try await report { _ = stallInConnect(to: listener, milliseconds: 700) }
        #expect(argument("addr", report) == "127.0.0.1:\(listener.port)")
        #expect(report.cause.systemCall?.descriptors?.first?.socket?.state == "syn_sent")
        #expect(report.cause.summary.contains("127.0.0.1:\(listener.port) to accept a connection"))
    }

    @Test("poll(2) is reported with its timeout and its descriptors")
    func poll() async throws {
        let report = try await report { _ = stallInPoll(700) }
        #expect(["poll", "ppoll"].contains(report.cause.systemCall?.name) && argument("timeout", report) == "700ms")
        #expect(report.cause.systemCall?.descriptors?.map(\.kind) == [.pipe])
    }

    @Test("waitpid(2) is reported with the child's id and name")
    func child() async throws {
        // However late the machine is, the child lives until its name is known.
        let child = WaitedChild()
        let report = try await report(whenBegun: child.end) { _ = stallInWait(for: child) }
        #expect(report.cause.verdict == .blocked && report.cause.systemCall?.name == "wait4")
        #expect(report.cause.summary.contains(" (sleep) to end in wait4(2)"), "\(report.cause.summary)")
    }

    @Test("A file lock is reported with the path and the process that holds it")
    func fileLock() async throws {
        let path = directory.path + "/lock"
        _ = FileManager.default.createFile(atPath: path, contents: nil)
        let holder = Process()
        holder.executableURL = URL(filePath: "/usr/bin/flock")
        holder.arguments = [path, "sh", "-c", "echo locked; exec timeout 60 head -c 1"]
        let (input, output) = (Pipe(), Pipe())
        (holder.standardInput, holder.standardOutput) = (input, output)
        try holder.run()
        _ = try await onThread { [reading = output.fileHandleForReading] in try reading.read(upToCount: 7) }
        // However late the machine is, the lock is held until the holder is known.
        let release: @Sendable () -> Void = { [writing = input.fileHandleForWriting] in
            try? writing.write(contentsOf: Data([10]))
        }
        let report = try await report(whenBegun: release) { _ = stallInFileLock(path) }
        // The process has ended with its lock.
        let descriptor = try #require(report.cause.systemCall?.descriptors?.first)
        #expect(argument("operation", report) == "LOCK_EX" && descriptor.target == path)
        #expect(descriptor.fileSystem != nil && descriptor.isRemote == false && descriptor.isDeleted == false)
        #expect(descriptor.holder?.pid == holder.processIdentifier && descriptor.holder?.name == "flock")
        #expect(report.cause.summary.contains("process \(holder.processIdentifier) (flock) holds"))
    }

    @Test(
        "A write to a frozen file system is a disk wait, with the file",
        .enabled("no loop device can be mounted here") { try await onThread { FrozenDisk.canBeMade } }
    )
    func frozenDisk() async throws {
        let made = try await onThread { [directory] in FrozenDisk(in: directory.path) }
        let disk = try #require(made)
        // Before the stall, because freezing writes to the disk, and may take long. However late the machine is, it is frozen
        // until the stall is reported.
        let isFrozen = try await onThread { disk.freeze() }
        try #require(isFrozen)
        let report = try await report(whenBegun: disk.thaw) { disk.stallInWrite() }
        #expect(report.cause.verdict == .diskWait, "\(report.cause)")
        #expect(report.cause.systemCall?.name == "write" && report.thread.state == "D")
        #expect(report.cause.systemCall?.descriptors?.first?.target == disk.file)
        #expect(report.cause.systemCall?.descriptors?.first?.fileSystem == "ext4")
    }

    @Test("The other threads are reported if configured, equal stacks once")
    func otherThreads() async throws {
        let ready = DispatchSemaphore(value: 0)
        for _ in 0..<3 {
            startThread {
                ready.signal()
                _ = stallInSleep(5_000)
            }
        }
        for _ in 0..<3 { ready.wait() }
        // Their stacks are taken within one tick, in which a watchdog that waits for a processor does not reach all of them.
        let change: (inout StallMonitor.Configuration) -> Void = { configuration in
            configuration.rule = StallRule(tick: .milliseconds(500), ticks: 2)
            configuration.capturesAllThreads = true
        }
        let report = try await report(change) { _ = stallInRead(1_700) }
        let others = report.stacks.filter { $0.role == .other }
        let sleepers = others.first { $0.frames.contains { $0.function?.contains("stallInSleep") == true } }
        #expect((sleepers?.count ?? 0) >= 3 && sleepers?.threads?.count == sleepers?.count)
        let modules = Set(others.flatMap { $0.frames.compactMap(\.module) })
        #expect(modules.allSatisfy(report.modules.indices.contains))
        #expect(!others.contains { $0.thread.id == report.thread.id })
        #expect(report.stacks[0].role == .stalled)
    }

    // MARK: - What the stack adds to the call

    @Test(
        "A SQLite database that another process has locked is reported with its file and that process",
        .enabled(if: unsafe SQLiteLibrary.isThere && access("/usr/bin/sqlite3", X_OK) == 0, "needs SQLite"),
        arguments: ["DELETE", "WAL"]
    )
    func lockedDatabase(_ mode: String) async throws {
        let path = directory.path + "/shop.db"
        let owner = Process()
        let (input, output) = (Pipe(), Pipe())
        owner.executableURL = URL(filePath: "/usr/bin/sqlite3")
        owner.arguments = [path]
        (owner.standardInput, owner.standardOutput) = (input, output)
        try owner.run()
        let script =
            "PRAGMA journal_mode=\(mode); CREATE TABLE a(b); BEGIN IMMEDIATE; INSERT INTO a VALUES(1); SELECT 'held';\n"
        try input.fileHandleForWriting.write(contentsOf: Data(script.utf8))
        var said = ""
        while !said.contains("held"), case let data = output.fileHandleForReading.availableData, !data.isEmpty {
            said += String(decoding: data, as: UTF8.self)
        }
        // However late the machine is, the database is locked until the owner is known.
        let release: @Sendable () -> Void = { [writing = input.fileHandleForWriting] in try? writing.close() }
        let report = try await report(whenBegun: release) {
            _ = SQLiteLibrary.stallInWriting(to: path, milliseconds: 60_000)
        }
        owner.waitUntilExit()
        #expect(report.cause.verdict == .blocked, "\(report.cause)")
        #expect(
            report.cause.summary.hasPrefix(
                "The thread waited for the SQLite database \(path), which process \(owner.processIdentifier) (sqlite3) has locked"
            ),
            "\(report.cause.summary) \(said)"
        )
        let told = try #require(report.cause.systemCall?.descriptors?.first)
        #expect(told.target == path && told.holder?.pid == owner.processIdentifier)
        #expect(report.culprit?.function?.contains("stallInWriting") == true)
    }

    @Test("A child process that Foundation waits for is reported with its id and name")
    func awaitedChild() async throws {
        // It lives until the functions' names are found: only they show that it is waited for.
        let child = WaitedChild()
        let report = try await report(whenBegun: child.end) { _ = stallInChild(child) }
        #expect(report.cause.verdict == .blocked)
        #expect(report.cause.summary.contains(", in Process.waitUntilExit"), "\(report.cause.summary)")
        // Other tests may have left children of their own.
        #expect(
            report.cause.summary.contains(" (sleep)") && report.cause.summary.contains(" to end"),
            "\(report.cause.summary)"
        )
    }

    @Test("A sleep that was interrupted by a stop of the process is reported as a sleep")
    func continuedSleep() async throws {
        let host = Process()
        host.executableURL = .built("cause-host")
        host.arguments = [directory.path + "/reports", "sleep", "3000"]
        let output = Pipe()
        host.standardOutput = output
        try host.run()
        let pid = host.processIdentifier
        let words = try await onThread { () -> [String] in
            func calls() -> [Substring] {
                let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
                let worker = tasks.first { readSmallFile("/proc/\(pid)/task/\($0)/comm") == "worker\n" } ?? ""
                return readSmallFile("/proc/\(pid)/task/\(worker)/syscall")?.split(separator: " ") ?? []
            }
            func state() -> Character? {
                readSmallFile("/proc/\(pid)/stat")?.split(separator: ")").last?.dropFirst().first
            }
            let sleep = (0..<600).first { SystemCall(number: $0, arguments: []).name == "clock_nanosleep" } ?? 0
            func isAlive() -> Bool { state().map { $0 != "Z" } ?? false }
            while calls().first != "\(sleep)", isAlive() { sched_yield() }
            kill(pid, SIGSTOP)
            while state() != "T", isAlive() { sched_yield() }
            kill(pid, SIGCONT)
            return String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
                .split(separator: "\n").map(String.init)
        }
        host.waitUntilExit()
        #expect(words.prefix(2) == ["blocked", "The thread slept in clock_nanosleep(2), for 3s."], "\(words)")
    }
}
