import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

@Suite("The monitor in a service group", .timeLimit(.minutes(2)))
struct ServiceTests {
    private static let host = TargetProcess.executable.deletingLastPathComponent().appending(path: "service-host")

    /// Blocks the main actor for this time; sends SIGTERM once the stall is reported. Returns the host's output and
    /// its directory's contents.
    private func end(inTheMidstOf milliseconds: Int) throws -> (lines: [String], contents: ReportReader.Contents) {
        let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
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

    @Test(
        "SIGTERM during a stall: the other services end first, then the report is closed and on the disk",
        .repeatedWhenLate(by: .milliseconds(500))
    )
    func termination() throws {
        let (lines, contents) = try end(inTheMidstOf: 3000)
        #expect(lines.prefix(4) == ["began", "worker ended", "told abandoned", "ended in order"])
        #expect(contents.reports.map(\.state) == [.abandoned])
        #expect(contents.runs.map(\.state) == [.stopped] && contents.failures.isEmpty)
        #expect(lines.last == "counted 1, saw one under way: true")
    }
}
