import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// A `pool-host` that has run some scenes: what it printed, and its reports.
struct PoolHostRun {
    static let executable = URL.built("pool-host")

    /// By scene: the events during it.
    private var lines: [String: [String]] = [:]
    let status: Int32
    let contents: ReportReader.Contents

    init(_ scenes: [String], in directory: String) throws {
        let process = Process()
        process.executableURL = Self.executable
        process.arguments = [directory] + scenes
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        status = process.terminationStatus
        var scene = ""
        for line in text.split(separator: "\n").map(String.init) {
            if line.hasPrefix("scene ") { scene = String(line.dropFirst(6)) }
            lines[scene, default: []].append(line)
        }
        contents = try ReportReader(path: directory).contents()
    }

    /// The rest of each of a scene's lines that begin with this word.
    func told(_ word: String, in scene: String) -> [String] {
        (lines[scene] ?? []).filter { $0.hasPrefix(word + " ") }.map { String($0.dropFirst(word.count + 1)) }
    }

    /// The reports of the stalls that had events during a scene.
    func reports(_ scene: String) -> [StallReport] {
        let ids = told("began", in: scene).compactMap { $0.split(separator: " ").first.flatMap { ULID(String($0)) } }
        return contents.reports.filter { ids.contains($0.id) }
    }

    /// The only report of a scene.
    func report(_ scene: String, sourceLocation: SourceLocation = #_sourceLocation) throws -> StallReport {
        let reports = reports(scene)
        try #require(reports.count == 1, "\(lines[scene] ?? [])", sourceLocation: sourceLocation)
        #expect(
            told("suppressed", in: scene).isEmpty && told("fault", in: scene).isEmpty,
            sourceLocation: sourceLocation
        )
        return reports[0]
    }

    /// When its jobs began and ended, nanoseconds since 1970.
    func jobs(_ scene: String) -> [(start: Int64, end: Int64)] {
        told("job", in: scene).compactMap { line in
            let times = line.split(separator: " ").compactMap { Int64($0) }
            return times.count == 2 ? (times[0], times[1]) : nil
        }
    }
}

extension Timestamp {
    /// Since 1970.
    var nanosecondsSince1970: Int64 { nanoseconds(since: Timestamp(seconds: 0, nanoseconds: 0)) }
}

extension StallReport {
    /// Empty without one.
    var culpritText: String { culprit?.function ?? "" }

    /// The stacks of workers that call a function, by its name.
    func workers(at function: String) -> Int {
        let workers = pool?.workers ?? []
        return workers.count { worker in
            guard let index = worker.stack, stacks.indices.contains(index) else { return false }
            return stacks[index].frames.contains { $0.function?.contains(function) == true }
        }
    }
}
