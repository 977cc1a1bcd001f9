import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

/// What `loop-host` printed and reported in a scene, after its end.
struct LoopHostRun {
    let lines: [String]
    let status: Int32
    let directory: String

    private static let executable = URL.built("loop-host")

    /// Runs the scene, on a separate thread; a host that hangs is killed after three minutes.
    init(_ scene: String) async throws {
        // In memory: on a busy machine a disk can take longer than the monitor waits for it.
        let directory = "/dev/shm/loop-host-\(UUID())"
        (lines, status) = try await onThread { try Self.play(scene, directory) }
        self.directory = directory
    }

    private static func play(_ scene: String, _ directory: String) throws -> ([String], Int32) {
        let (process, output) = (Process(), Pipe())
        process.executableURL = URL(filePath: "/usr/bin/timeout")
        process.arguments = ["--signal=KILL", "180", executable.path, directory, scene]
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (text.split(separator: "\n").map(String.init), process.terminationStatus)
    }

    /// The contents of its directory, or of its child's.
    func contents(child: Bool = false) throws -> ReportReader.Contents {
        try ReportReader(path: directory + (child ? "-child" : "")).contents()
    }

    /// How often a line was printed.
    func count(_ line: String) -> Int { lines.count { $0 == line } }

    func remove() {
        for path in [directory, directory + "-child"] { try? FileManager.default.removeItem(atPath: path) }
    }
}

extension ReportReader.Contents {
    /// By their labels, sorted.
    var labels: [String] { reports.map(\.watched.label).sorted() }

    func report(_ label: String) throws -> StallReport {
        try #require(reports.first { $0.watched.label == label }, "no report of \(label)")
    }

    /// The labels of everything watched in the only run.
    func watched(_ type: WatchedType) throws -> [String] {
        try #require(runs.count == 1)
        return runs[0].watched.filter { $0.type == type }.map(\.label)
    }
}
