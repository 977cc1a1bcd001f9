import Foundation
import Glibc
import StallReading
import StallReports
import TestSupport
import Testing

/// Processes that end during a stall.
@Suite(
    "A stall that its process does not survive",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct DeathTests {
    /// In memory, because a disk may hang.
    private let directory = TemporaryDirectory(inMemory: true)

    private var path: String { directory.path + "/reports" }

    /// Starts a process, waits until its stall is reported, then makes it die. Also returns what was known of the
    /// stall just before.
    private func report(
        afterDeath death: String,
        _ act: (DyingProcess) throws -> Void
    ) async throws -> (report: StallReport, before: StallReport) {
        let process = try DyingProcess(death, in: path)
        let id = try #require(await process.word(after: "began").flatMap(ULID.init))
        let seen = try await growth(of: id, process)
        try act(process)
        await process.end()
        let contents = try process.reader.contents()
        #expect(contents.failures.isEmpty && contents.reports.map(\.id) == [id])
        let report = try #require(contents.reports.first)
        #expect(report.durationNs >= seen.durationNs, "what was known before the end is known after it")
        #expect(contents.runs.map(\.state) == [.terminated])
        #expect(contents.runs.first?.processEnd == report.processEnd)
        return (report, seen)
    }

    /// Waits until the running process's stall is known to be longer than at its detection. Returns its report at
    /// that time.
    private func growth(of id: ULID, _ process: DyingProcess) async throws -> StallReport {
        while true {
            let report = try process.reader.report(id)
            try #require(report.state == .ongoing)
            if report.durationNs > 400_000_000 { return report }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    @Test(
        "After kill -9, another thread's crash or abort, or _exit a stall is terminated and claims only what is known"
    )
    func violentDeaths() async throws {
        let deaths: [(String, (DyingProcess) throws -> Void)] = [
            ("wait", { $0.kill(SIGKILL) }), ("crash", { try $0.proceed() }), ("abort", { try $0.proceed() }),
            ("_exit", { try $0.proceed() }),
        ]
        for (death, act) in deaths {
            try? FileManager.default.removeItem(atPath: path)
            let (report, before) = try await report(afterDeath: death, act)
            #expect(report.state == .terminated && report.processEnd?.cause == .killedOrCrashed, "\(death)")
            let least = try #require(report.durationMinNs)
            #expect(least <= report.durationNs && report.durationMaxNs == nil && report.endedAt == nil)
            // If a look fell between the loop's stamp and its block, the start is a range, and stays one.
            let wasExact = before.durationMinNs == nil || before.durationMinNs == before.durationNs
            #expect(!wasExact || least == report.durationNs, "\(least) of \(report.durationNs)")
            #expect(report.culprit != nil || !report.stacks.isEmpty)
        }
    }

    /// Whether the runtime's crash handler exists, beside its library.
    private static let hasCrashHandler: Bool = {
        let library = procText("/proc/self/maps").split(separator: "\n").first { $0.hasSuffix("/libswiftCore.so") }?
            .split(separator: " ").last
        guard let library else { return false }
        let root = URL(filePath: String(library)).deletingLastPathComponent().appending(
            path: "../../../libexec/swift/linux"
        )
        return unsafe access(root.appending(path: "swift-backtrace").path, X_OK) == 0
    }()

    @Test(
        "The runtime's crash handler after a crash is not part of the stall; the report says that it ran",
        .enabled(if: DeathTests.hasCrashHandler, "needs swift-backtrace beside the runtime")
    )
    func crashHandler() async throws {
        let process = try DyingProcess("crash", in: path, tellsCrashes: true)
        let id = try #require(await process.word(after: "began").flatMap(ULID.init))
        _ = try await growth(of: id, process)
        try process.proceed()
        let crashed = try await onThread {
            process.awaitChild("swift-backtrace")
            return Timestamp.now()
        }
        await process.end()
        let contents = try process.reader.contents()
        let report = try #require(contents.reports.first)
        #expect(contents.reports.map(\.id) == [id], "the threads that the handler holds are no stalls")
        #expect(report.state == .terminated && report.processEnd?.cause == .killedOrCrashed)
        #expect(report.durationNs <= crashed.nanoseconds(since: report.startedAt))
        #expect(
            report.cause.summary.hasSuffix(
                " Then the process crashed; the time that its crash handler took is not counted."
            )
        )
    }

    @Test(
        "a stall of the longest permitted length ends the process after its report was written"
    )
    func lastResort() async throws {
        let deaths = [
            ("last-resort", SIGABRT), ("last-resort-hung", SIGKILL), ("last-resort-hung-without-timer", SIGKILL),
        ]
        for (death, signal) in deaths {
            try? FileManager.default.removeItem(atPath: path)
            let process = try DyingProcess(death, in: path)
            let id = try #require(await process.word(after: "began").flatMap(ULID.init))
            #expect(await process.word(after: "stall-monitor:") != nil, "standard error says why")
            #expect(await process.end() == signal, "\(death)")
            let report = try process.reader.report(id)
            #expect(report.state == .terminated && report.processEnd?.cause == .killedOrCrashed)
            #expect(report.durationNs >= 1_000_000_000)
            #expect(
                report.cause.summary.contains("longer than 1s: the monitor ends the process."),
                "\(report.cause.summary)"
            )
            #expect(report.stacks.contains { $0.role == .other }, "what the other threads were at")
            #expect(try process.reader.contents().reports.count == 1)
        }
    }

    @Test("exit during a stall is reported with its status; so is a return from main")
    func exits() async throws {
        for (death, status) in [("exit", Int32(7)), ("return", 0)] {
            try? FileManager.default.removeItem(atPath: path)
            let (report, _) = try await report(afterDeath: death) { try $0.proceed() }
            #expect(report.state == .terminated && report.processEnd?.cause == .exit, "\(death)")
            #expect(report.processEnd?.exitStatus == status)
        }
    }

    @Test("a process that runs another program is over, although its process id lives on")
    func exec() async throws {
        let process = try DyingProcess("exec", in: path)
        _ = await process.word(after: "began")
        try process.proceed()
        while try process.reader.contents().reports.first?.state == .ongoing {
            try await Task.sleep(for: .milliseconds(20))
        }
        let report = try #require(try process.reader.contents().reports.first)
        #expect(report.state == .terminated && report.processEnd?.cause == .exec)
        process.kill(SIGKILL)
    }

    @Test("a child without a program of its own does not keep its dead parent's stall alive")
    func forkedChild() async throws {
        let process = try DyingProcess("fork", in: path)
        _ = await process.word(after: "began")
        try process.proceed()
        let child = try #require(await process.word(after: "child").flatMap { Int32($0) })
        defer { kill(child, SIGKILL) }
        var live = try process.reader.liveProcesses().processes
        while live.first?.holdsLock == true {
            try await Task.sleep(for: .milliseconds(20))
            live = try process.reader.liveProcesses().processes
        }
        #expect(live.first?.holdsLock == false && kill(child, 0) == 0)
        #expect(try process.reader.contents().reports.first?.processEnd?.cause == .killedOrCrashed)
    }

    @Test("a child that a cancelled thread forks lives until it ends itself")
    func cancelledFork() async throws {
        let process = try DyingProcess("fork-cancelled", in: path)
        _ = await process.word(after: "began")
        try process.proceed()
        #expect(await process.word(after: "status") == "42")
    }

    @Test("a stall that was detected but not yet reported is known after the end")
    func unreported() async throws {
        let process = try DyingProcess("unreported", in: path)
        _ = await process.word(after: "began")
        var labels: [String] = []
        while !labels.contains("second") || labels.count < 2 {
            labels = try process.reader.liveProcesses().processes.flatMap(\.record.stalls).map(\.watched.label)
            try await Task.sleep(for: .milliseconds(20))
        }
        let told = try process.reader.contents().reports.map(\.watched.label)
        #expect(told.count == 1, "the reporter is held by the first")
        process.kill(SIGKILL)
        await process.end()
        let second = try #require(try process.reader.contents().reports.first { !told.contains($0.watched.label) })
        #expect(second.state == .terminated && second.durationNs >= 250_000_000 && second.stacks.isEmpty)
        #expect(second.service?.name == "death" && second.process.pid == process.pid)

        // The next start writes its report and removes the record.
        try ReportDirectory(path: path).closeTerminated()
        #expect(try process.reader.liveProcesses().processes.isEmpty)
        #expect(try process.reader.contents().reports.map(\.state) == [.terminated, .terminated])
    }

    @Test("a server that closes every descriptor loses no byte of its files, and its stalls are still recorded")
    func closedDescriptors() async throws {
        let process = try DyingProcess("close", in: path)
        let id = try #require(await process.word(after: "began").flatMap(ULID.init))
        try process.proceed()
        _ = await process.word(after: "closed")
        // A record is created again: only then does its lock show again that the process lives.
        while try process.reader.liveProcesses().processes.first?.holdsLock != true {
            try await Task.sleep(for: .milliseconds(20))
        }
        let before = try process.reader.report(id)
        #expect(before.state == .ongoing)
        while try process.reader.report(id).durationNs <= before.durationNs {
            try await Task.sleep(for: .milliseconds(20))
        }
        for index in 0..<40 {
            let text = try String(contentsOfFile: directory.path + "/precious-\(index)", encoding: .utf8)
            #expect(text == "precious")
        }
        process.kill(SIGKILL)
        await process.end()
        #expect(try process.reader.report(id).state == .terminated)
    }

    @Test("a server that changes its working directory leaves its files where it began, and no trace of a death")
    func changedDirectory() async throws {
        try? FileManager.default.removeItem(atPath: path)
        let output = try await run(path, "elsewhere")
        #expect(output.hasSuffix("done\n"), "\(output)")
        let reader = ReportReader(path: path)
        #expect(try reader.liveProcesses().processes.isEmpty)
        let contents = try reader.contents()
        #expect(contents.reports.count == 2 && contents.runs.count == 1)
        // The monitor may stop before the loop has turned after the last of them.
        #expect(contents.reports.allSatisfy { $0.state == .recovered || $0.state == .abandoned })
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path + "/elsewhere").isEmpty)
    }

    @Test("a process whose first thread has ended is alive, and its stalls are reported like those of any other")
    func endedFirstThread() async throws {
        try? FileManager.default.removeItem(atPath: path)
        let process = try DyingProcess("first-thread-ended", in: path)
        let id = try #require(await process.word(after: "began").flatMap(ULID.init))
        var report = try await growth(of: id, process)
        while report.culprit == nil, report.durationNs < 20_000_000_000 {
            try await Task.sleep(for: .milliseconds(20))
            report = try process.reader.report(id)
        }
        #expect(report.culprit?.function == "readEmptyPipe()", "\(report.stacks.map(\.error))")
        #expect(report.cause.systemCall?.descriptors?.first?.kind == .pipe, "\(report.cause)")
        // What the next process with this directory does at its start.
        _ = try ReportDirectory(path: path).closeTerminated()
        #expect(try process.reader.report(id).state == .ongoing)
        #expect(try process.reader.liveProcesses().processes.count == 1)
        process.kill(SIGKILL)
        await process.end()
        #expect(try process.reader.report(id).state == .terminated)
    }

    @Test("an OOM kill is distinguished from other kills", .enabled(if: MemoryCgroup.isPossible))
    func outOfMemory() async throws {
        let cgroup = try MemoryCgroup(limit: 256 << 20)
        let process = try DyingProcess("memory", in: path, cgroup: cgroup.path)
        let id = try #require(await process.word(after: "began").flatMap(ULID.init))
        try process.proceed()
        await process.end()
        let report = try process.reader.report(id)
        #expect(report.state == .terminated && report.processEnd?.cause == .outOfMemory)
    }

    @Test("killed at random moments, it leaves no torn report, and every reported stall is there")
    func randomKills() async throws {
        let output = try await run("kills", path, testsAllForms ? "20" : "3")
        #expect(output.contains("missing 0, torn 0, wrong 0, not closed by the next start 0"), "\(output)")
    }

    @Test("a power cut at any moment tears no report and loses none that was written")
    func powerCuts() async throws {
        #expect(try await run("log", path, directory.path + "/log", "3000").hasSuffix("done\n"))
        let verdict = try await run("judge", directory.path + "/log", "300")
        #expect(verdict.contains("torn 0, lost 0"), "\(verdict)")
    }

    /// Everything that the fixture prints.
    private func run(_ arguments: String...) async throws -> String {
        try await onThread {
            let (process, output) = (Process(), Pipe())
            (process.executableURL, process.arguments) = (DyingProcess.executable, arguments)
            process.standardOutput = output
            try process.run()
            let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            process.waitUntilExit()
            return text
        }
    }
}

/// A cgroup with a limit, removed with the value.
private final class MemoryCgroup: Sendable {
    let path: String

    private static let (parent, limit) =
        unsafe access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0
        ? ("/sys/fs/cgroup/memory", "memory.limit_in_bytes") : ("/sys/fs/cgroup", "memory.max")

    static var isPossible: Bool { (try? MemoryCgroup(limit: 1 << 30)) != nil }

    init(limit: Int) throws {
        path = Self.parent + "/death-\(ULID.make())"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        try Data("\(limit)".utf8).write(to: URL(filePath: path + "/" + Self.limit))
        try? Data("0".utf8).write(to: URL(filePath: path + "/memory.swap.max"))
    }

    deinit { unsafe rmdir(path) }
}
