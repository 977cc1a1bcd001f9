import Foundation
import StallMonitor
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallMonitorService

@Suite("The monitor in a service group", .timeLimit(.minutes(60)))
struct ServiceTests {
    private static let host = URL.built("service-host")

    /// Blocks the main actor until the host has ended, and at most for this time; sends SIGTERM once the stall is reported. Returns
    /// the host's output and its directory's contents.
    private func end(inTheMidstOf milliseconds: Int) throws -> (lines: [String], contents: ReportReader.Contents) {
        // In memory: on a busy machine a disk can take longer than the monitor waits for it.
        let directory = URL(filePath: "/dev/shm").appending(path: "service-host-\(UUID())")
        // The host's monitor makes it too, but on a thread of its own, perhaps after the first look of `reader`.
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let host = try TargetProcess(directory.path, "\(milliseconds)", executable: Self.host)
        let reader = ReportReader(path: directory.path)
        let deadline = Date(timeIntervalSinceNow: 60)
        while Date.now < deadline, try reader.contents().reports.isEmpty { usleep(10_000) }
        let lines = host.finish().split(separator: "\n").map(String.init)
        return (lines, try reader.contents())
    }

    @Test("Without a log and a handler, a fault of the monitor goes to standard error")
    func unheard() throws {
        let directory = URL(filePath: "/dev/shm").appending(path: "service-host-\(UUID())")
        defer { try? FileManager.default.removeItem(at: directory) }
        let command = ["-c", "echo READY; exec \"$@\" 2>&1", "sh", Self.host.path, directory.path, "unheard"]
        let output = try TargetProcess(arguments: command, executable: URL(filePath: "/bin/sh")).rest()
        #expect(output.contains("startupGraceMilliseconds is -1000; set it to 0 to 3600000"), "\(output)")
    }

    @Test("An interval of nothing, or of all time, is brought into its range")
    func intervals() {
        let configuration = StallMonitor.Configuration(enabled: false)
        let endless = Duration.seconds(Int64.max)
        for (wanted, used) in [(Duration.zero, 100), (.seconds(-1), 100), (.seconds(7), 7_000), (endless, 86_400_000)] {
            let service = StallMonitorService(configuration, every: wanted)
            #expect(service.interval == .milliseconds(used))
        }
        #expect(StallMonitorService.interval(.zero, atLeast: .milliseconds(10)) == .milliseconds(10))
    }

    @Test(
        "SIGTERM during a stall: the other services end first, then the report is closed and on the disk",
        .repeatedWhenLate(by: .milliseconds(200))
    )
    func termination() throws {
        let (lines, contents) = try end(inTheMidstOf: 60_000)
        #expect(lines.filter { $0 != "began" }.prefix(3) == ["worker ended", "told abandoned", "ended in order"])
        // The host prints this once the report is on the disk. The test may have seen the report, and ended the host, before that.
        #expect(lines.prefix(3).contains("began"))
        #expect(contents.reports.map(\.state) == [.abandoned])
        #expect(contents.runs.map(\.state) == [.stopped] && contents.failures.isEmpty)
        #expect(lines.last == "counted 1, saw one under way: true")
    }
}
