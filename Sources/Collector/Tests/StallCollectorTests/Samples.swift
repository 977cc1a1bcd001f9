import Foundation
import StallReports
import StallStore

/// Reports and stores for the tests of the collector.
enum Samples {
    static func report(_ function: String = "total()", id: ULID = .make(), service: String = "shop") -> StallReport {
        let start = Timestamp.now().advanced(byNanoseconds: -60_000_000_000)
        let frame = StallReport.Frame(address: 1, function: function, own: true)
        return StallReport(
            id: id,
            kind: .blocked,
            state: .recovered,
            startedAt: start,
            detectedAt: start,
            endedAt: start.advanced(byNanoseconds: 500_000_000),
            durationNs: 500_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .init(name: "web1"),
            service: .init(name: service, version: "1.2"),
            process: .init(pid: 7),
            watched: .init(label: "main"),
            thread: .init(id: 7),
            cause: .init(verdict: .onCPU, summary: "It computed."),
            stacks: [.init(thread: .init(id: 7), capturedAt: start, frames: [frame])],
            culprit: .init(function: function, stack: 0, frame: 0),
            fingerprint: .make(kind: .blocked, frames: [frame], modules: [])
        )
    }

    static func withStore(_ work: (SQLiteStore, String) async throws -> Void) async throws {
        let directory = FileManager.default.temporaryDirectory.path + "/stall-collector-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try await work(try SQLiteStore(path: directory + "/stalls.db"), directory)
    }
}
