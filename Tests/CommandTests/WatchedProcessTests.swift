import Foundation
import Glibc
import TestSupport
import Testing

@testable import StallReading
@testable import StallReports

@Suite("A watched process, seen from outside", .serialized, .timeLimit(.minutes(10)))
struct WatchedProcessTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    @Test("After a kill -9 during a stall the report exists; readers and the next start show it as terminated")
    func killed() throws {
        let host = try StallHostRun(directory: fixture.path)
        try host.stall("sleep", milliseconds: 600_000)
        let report = try host.report { $0.state == .ongoing }
        host.send(SIGKILL)
        #expect(host.status() == 128 + SIGKILL)

        let list = try CommandRun("list", fixture.path, "--format", "json")
        #expect(list.output.contains("\"terminated\"") && !list.output.contains("\"ongoing\""))
        #expect(try ReportReader(path: fixture.path, liveness: .blind).report(report.id).state == .ongoing)

        let next = try StallHostRun(directory: fixture.path)
        let closed = try next.report { $0.id == report.id && $0.state == .terminated }
        #expect(closed.culprit == report.culprit && closed.durationNs >= report.durationNs)
        next.send(SIGTERM)
        #expect(next.status() == 0)
        #expect(try ReportReader(path: fixture.path, liveness: .blind).report(report.id).state == .terminated)
    }

    @Test("A captured stall still lasts its full time: no call is cut short")
    func cutsNothingShort() throws {
        func stall() throws -> (stacks: [StallReport.Stack], delay: Duration) {
            let host = try StallHostRun(directory: "\(fixture.path)-\(UUID())")
            defer { try? FileManager.default.removeItem(atPath: host.directory) }
            let before = timeWithoutProcessor(of: host.pid)
            try host.stall("sleep", milliseconds: 1500)
            let report = try host.report { $0.state == .recovered }
            let delay = timeWithoutProcessor(of: host.pid) - before
            #expect(report.durationNs >= 1_500_000_000)
            host.send(SIGTERM)
            #expect(host.status() == 0)
            return (report.stacks, delay)
        }
        // A thread that waits for a processor, before its call or after it, may be stopped for a stack that is due just then: a few tries.
        var isQuiet = false
        for _ in 0..<5 where !isQuiet {
            let (stacks, delay) = try stall()
            isQuiet = !stacks.isEmpty && stacks.allSatisfy { $0.method == .quiet }
            if !isQuiet, delay < .microseconds(200) { break }
        }
        #expect(isQuiet)
    }

    @Test("While idle, neither the watchdog nor the reporter makes a system call")
    func idle() throws {
        let host = try StallHostRun(directory: fixture.path)
        try host.stall("sleep", milliseconds: 400)
        _ = try host.report { $0.state == .recovered }
        for name in ["stall-watchdog", "stall-reporter"] {
            let thread = try host.threadID(named: name)
            var output = try trace(thread)
            // On a busy machine the thread may not be idle yet.
            for _ in 0..<10 where !isQuiet(output) { output = try trace(thread) }
            #expect(isQuiet(output), "\(name): \(output)")
        }
        host.send(SIGTERM)
        #expect(host.status() == 0)
    }

    /// The output of strace about a thread, for five seconds.
    private func trace(_ thread: Int32) throws -> String {
        let arguments = ["--signal=KILL", "5", "/usr/bin/strace", "-p", "\(thread)"]
        return try CommandRun(tool: "/usr/bin/timeout", arguments).errors
    }

    /// Whether there is one line at most, the wait in which strace found the thread.
    private func isQuiet(_ output: String) -> Bool {
        output.contains("attached") && output.split(separator: "\n").count { $0.contains("(") } <= 1
    }
}

extension ProcessLiveness {
    /// Sees no process, and so treats none as dead.
    fileprivate static let blind = ProcessLiveness(host: HostIdentity(name: "elsewhere"), pidNamespace: nil)
}

/// Programs from other kinds of builds, and without a first thread.
@Suite("watch of programs built differently", .serialized, .timeLimit(.minutes(60)))
struct WatchedBuildsTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    /// Stalls it twice; both stalls must be reported with their functions.
    private func judge(_ target: LoopTarget, _ watch: WatchRunning) throws {
        for order in ["call read_pipe 400", "compute 400"] {
            _ = try target.stall(order)
            usleep(150_000)
        }
        let reports = try watch.finish()
        let functions = reports.map { $0.stacks.first?.frames.compactMap(\.function) ?? [] }
        try #require(reports.count == 2, "\(functions) \(watch.notes)")
        #expect(functions[0].contains("call_read_pipe") && functions[1].contains("compute_until"), "\(functions)")
        #expect(reports.allSatisfy { $0.kind == .blocked && $0.state == .recovered })
        // The descriptor that it waits for belongs to the process, whichever thread is asked.
        #expect(reports[0].cause.systemCall?.descriptors?.first?.kind == .pipe, "\(reports[0].cause)")
        #expect(!watch.notes.contains { $0.contains("another program") }, "\(watch.notes)")
    }

    @Test(
        "Statically linked, or with debug tables only: found and explained like any other",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/gcc"), "there is no gcc"),
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40)),
        arguments: [
            ["-static", "-O2"], ["-static", "-O1", "-g", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"],
        ]
    )
    func builds(_ flags: [String]) throws {
        let program = try Self.compile(flags)
        defer { try? FileManager.default.removeItem(at: program) }
        let target = try LoopTarget(executable: program)
        let watch = try WatchRunning(["\(target.pid)"], directory: fixture.path)
        try watch.waitForLoops(1)
        try judge(target, watch)
    }

    @Test(
        "A process whose first thread ends, before or while watched, is not taken for one that runs another program",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40)),
        arguments: [true, false]
    )
    func headless(_ before: Bool) throws {
        let target = try LoopTarget("beside")
        if before { try endFirstThread(of: target) }
        let watch = try WatchRunning(["\(target.pid)"], directory: fixture.path)
        try watch.waitForLoops(1)
        if !before { try endFirstThread(of: target) }
        // Until it has checked the process once more, which it does each second.
        usleep(2_500_000)
        try judge(target, watch)
    }

    private func endFirstThread(of target: LoopTarget) throws {
        try target.tell("headless")
        #expect(try target.answer() == ["HEADLESS"])
        func state() -> Substring? {
            (try? String(contentsOfFile: "/proc/\(target.pid)/stat", encoding: .utf8))?.split(separator: " ")[2]
        }
        for _ in 0..<120_000 where state() != "Z" { usleep(1_000) }
        #expect(state() == "Z")
    }

    private static func compile(_ flags: [String]) throws -> URL {
        let sources = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "Fixtures/SampleTarget")
        let files = try FileManager.default.contentsOfDirectory(atPath: sources.path).filter { $0.hasSuffix(".c") }
        let program = FileManager.default.temporaryDirectory.appending(path: "watched-\(UUID())")
        let compiler = Process()
        compiler.executableURL = URL(filePath: "/usr/bin/gcc")
        compiler.arguments =
            ["-D_GNU_SOURCE", "-w", "-o", program.path] + flags + files.map { sources.appending(path: $0).path } + [
                "-lrt"
            ]
        compiler.standardError = FileHandle.nullDevice
        try compiler.run()
        compiler.waitUntilExit()
        try #require(compiler.terminationStatus == 0)
        return program
    }
}
