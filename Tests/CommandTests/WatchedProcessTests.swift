import Foundation
import Testing

@testable import StallReading
@testable import StallReports

@Suite("A watched process, seen from outside", .serialized, .timeLimit(.minutes(10)))
struct WatchedProcessTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

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
        let host = try StallHostRun(directory: fixture.path)
        try host.stall("sleep", milliseconds: 1500)
        let report = try host.report { $0.state == .recovered }
        #expect(report.durationNs >= 1_500_000_000)
        #expect(report.stacks.allSatisfy { $0.method == .quiet })
        host.send(SIGTERM)
        #expect(host.status() == 0)
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
