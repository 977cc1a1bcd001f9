#if Command
    import Foundation
    import Testing

    @testable import StallReports

    @Suite("demo", .serialized, .timeLimit(.minutes(3)))
    struct DemoTests {
        private let fixture: ReportsFixture

        init() throws { fixture = try ReportsFixture() }

        @Test("Each way of stalling gives one report that names the function; the control time none; exit 0")
        func show() throws {
            let run = try CommandRun("demo", "--format", "json", "--reports", fixture.path)
            let result = try #require(
                try JSONSerialization.jsonObject(with: Data(run.output.utf8)) as? [String: Any],
                "\(run.errors)"
            )
            #expect(run.status == 0 && result["passed"] as? Bool == true, "\(run.output)")
            let stalls = try #require(result["stalls"] as? [[String: Any]])
            #expect(stalls.compactMap { $0["stall"] as? String } == ["json", "lock", "pipe", "sleep", "fsync", "loop"])
            #expect(
                try ReportReader(path: fixture.path).contents().reports.map(\.state)
                    == .init(repeating: .recovered, count: 6)
            )
        }

        @Test("After a kill -9 in mid-stall the report is there; readers and the next start show it as terminated")
        func killed() throws {
            let server = try DemoServerRun(directory: fixture.path)
            try server.request("stall/sleep?ms=30000")
            let report = try server.report { $0.state == .ongoing }
            server.send(SIGKILL)
            #expect(server.status() == 128 + SIGKILL)

            let list = try CommandRun("list", fixture.path, "--format", "json")
            #expect(list.output.contains("\"terminated\"") && !list.output.contains("\"ongoing\""))
            #expect(try ReportReader(path: fixture.path, liveness: .blind).report(report.id).state == .ongoing)

            let next = try DemoServerRun(directory: fixture.path)
            let closed = try next.report { $0.id == report.id && $0.state == .terminated }
            #expect(closed.culprit == report.culprit && closed.durationNs >= report.durationNs)
            next.send(SIGTERM)
            #expect(next.status() == 0)
            #expect(try ReportReader(path: fixture.path, liveness: .blind).report(report.id).state == .terminated)
        }

        @Test("A stall that is captured still lasts its full time: nothing is cut short")
        func cutsNothingShort() throws {
            let server = try DemoServerRun(directory: fixture.path)
            try server.request("stall/sleep?ms=1500")
            let report = try server.report { $0.state == .recovered }
            #expect(report.durationNs >= 1_500_000_000)
            #expect(report.stacks.allSatisfy { $0.method == .quiet })
            server.send(SIGTERM)
            #expect(server.status() == 0)
        }

        @Test("Idle, neither the watchdog nor the reporter makes a system call")
        func idle() throws {
            let server = try DemoServerRun(directory: fixture.path)
            try server.request("stall/sleep?ms=400")
            _ = try server.report { $0.state == .recovered }
            for name in ["stall-watchdog", "stall-reporter"] {
                let trace = try CommandRun(
                    tool: "/usr/bin/timeout",
                    ["--signal=KILL", "5", "/usr/bin/strace", "-p", "\(try server.threadID(named: name))"]
                )
                // The one line is the wait that strace found the thread in.
                let calls = trace.errors.split(separator: "\n").filter { $0.contains("(") }
                #expect(calls.count <= 1 && trace.errors.contains("attached"), "\(name): \(trace.errors)")
            }
            server.send(SIGTERM)
            #expect(server.status() == 0)
        }

        @Test("A wrong option is usage, exit 64; a port in use is one line, exit 1")
        func wrongOptions() throws {
            #expect(try CommandRun("demo", "--port", "99999", "--keep").status == 64)
            #expect(try CommandRun("demo", "--port", "80").status == 64)
            let server = try DemoServerRun(directory: fixture.path)
            let second = try CommandRun("demo", "--keep", "--port", "\(server.port)", "--reports", fixture.path)
            #expect(second.status == 1 && second.errors.split(separator: "\n").count == 1, "\(second.errors)")
            server.send(SIGTERM)
            #expect(server.status() == 0)
        }
    }
#endif
