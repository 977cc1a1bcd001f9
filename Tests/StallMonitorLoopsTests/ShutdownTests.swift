import Foundation
import StallReports
import TestSupport
import Testing

@Suite("A server with a main loop of its own choice that ends in mid-stall", .serialized, .timeLimit(.minutes(3)))
struct ShutdownTests {
    private static let host = TargetProcess.executable.deletingLastPathComponent().appending(path: "shutdown-host")

    @Test(
        "SIGTERM while the main thread stands: the report is closed and on the disk before the process ends",
        .repeatedWhenLate(by: .milliseconds(500)),
        arguments: ["dispatch-main", "run-loop"]
    )
    func termination(_ loop: String) throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: directory) }
        let host = try TargetProcess(directory.path, loop, executable: Self.host)
        let reader = ReportReader(path: directory.path)
        let deadline = Date(timeIntervalSinceNow: 60)
        while Date.now < deadline, try reader.contents().reports.isEmpty { usleep(10_000) }
        let lines = host.finish().split(separator: "\n").map(String.init)
        #expect(lines == ["began", "told abandoned", "ended in order"])
        let contents = try reader.contents()
        #expect(contents.reports.map(\.state) == [.abandoned])
        #expect(contents.runs.map(\.state) == [.stopped] && contents.failures.isEmpty)
    }
}
