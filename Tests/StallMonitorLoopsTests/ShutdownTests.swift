import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

@Suite("A server with another main loop that ends during a stall", .serialized, .timeLimit(.minutes(60)))
struct ShutdownTests {
    private static let host = URL.built("shutdown-host")

    @Test(
        "SIGTERM while Foundation's main loop is stalled: the report is closed and on the disk before the end",
        .repeatedWhenLate(by: .milliseconds(200))
    )
    func runLoop() throws {
        let (lines, contents) = try terminate("run-loop") { try !$0.contents().reports.isEmpty }
        #expect(lines == ["stalling", "began", "told abandoned", "ended in order"])
        #expect(contents.reports.map(\.state) == [.abandoned])
        #expect(contents.runs.map(\.state) == [.stopped] && contents.failures.isEmpty)
    }

    @Test(
        "SIGTERM under dispatchMain(), without a watchable loop: the run record is closed before the end"
    )
    func dispatchMain() throws {
        let (lines, contents) = try terminate("dispatch-main") { try !$0.contents().runs.isEmpty }
        #expect(lines.last == "ended in order")
        #expect(contents.reports.isEmpty && contents.failures.isEmpty)
        #expect(contents.runs.map(\.state) == [.stopped])
    }

    /// Runs a host until `isReady`, and ends it by SIGTERM. Returns what it printed and what it left in its
    /// directory.
    private func terminate(
        _ loop: String,
        _ isReady: (ReportReader) throws -> Bool
    ) throws -> ([String], ReportReader.Contents) {
        // In memory: on a busy machine a disk can take longer than the monitor waits for it.
        let directory = URL(filePath: "/dev/shm").appending(path: "shutdown-host-\(UUID())")
        // The host's monitor makes it too, but on a thread of its own, perhaps after the first look of `reader`.
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let host = try TargetProcess(directory.path, loop, executable: Self.host)
        let reader = ReportReader(path: directory.path)
        let deadline = Date(timeIntervalSinceNow: 40)
        while Date.now < deadline, try !isReady(reader) { usleep(10_000) }
        let lines = host.finish().split(separator: "\n").map(String.init)
        return (lines, try reader.contents())
    }
}
