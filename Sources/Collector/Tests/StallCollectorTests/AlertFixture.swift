import Foundation
import Logging
import StallReports
import StallStore

@testable import StallCollector

/// What a suite about alerts works with: rules in a file, and receivers that are programs.
protocol AlertFixture {
    /// A directory of the test's own, with its rules, its store and what its receivers were sent.
    var directory: String { get }
}

/// A message as a receiver gets it.
struct ReceivedMessage: Decodable {
    var text: String
    var alerts: [Entry]
    struct Entry: Decodable, Hashable {
        var state: String
        var rule: String
        var subject: String
        var url: String?
    }
}

extension AlertFixture {
    static var now: Timestamp { Timestamp(rfc3339: "2026-06-15T12:00:00Z")! }
    var rulesFile: String { directory + "/alerts.yaml" }

    func withStore(_ rules: String, _ work: (SQLiteStore) async throws -> Void) async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try write(rules)
        try await work(try SQLiteStore(path: directory + "/stalls.db"))
    }

    /// The receiver is a real program, which writes down what it is sent.
    func write(_ rules: String, receivers: [String] = ["told"], silences: String = "") throws {
        let ways = receivers.map {
            "  - exec: [/bin/sh, -c, 'cat >> \(directory)/\($0) && echo >> \(directory)/\($0)']"
        }
        let text =
            "url: https://stalls.example.com/\nrules:\n\(rules)\nreceivers:\n\(ways.joined(separator: "\n"))\n\(silences)"
        try text.write(toFile: rulesFile, atomically: true, encoding: .utf8)
        // Two versions within one tick of the file system's clock.
        try FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSinceNow: .random(in: 0...9e6))],
            ofItemAtPath: rulesFile
        )
    }

    func messages(_ receiver: String = "told") throws -> [ReceivedMessage] {
        guard let text = try? String(contentsOfFile: "\(directory)/\(receiver)", encoding: .utf8) else { return [] }
        return try text.split(separator: "\n").map { line in
            try JSONDecoder().decode(ReceivedMessage.self, from: Data(line.utf8))
        }
    }

    func watch(
        _ store: any StallStore,
        patience: Duration = .zero,
        metrics: CollectorMetrics = CollectorMetrics()
    ) throws -> AlertWatch {
        try AlertWatch(
            rulesFile,
            store,
            every: .seconds(3600),
            patience: patience,
            metrics: metrics,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
    }

    static func insert(
        _ function: String,
        minutesAgo: Int64,
        count: Int = 1,
        service: String = "shop",
        release: String = "1.5",
        verdict: Verdict = .onCPU,
        aliases: [Fingerprint]? = nil,
        into store: SQLiteStore
    ) async throws {
        let start = now.advanced(byNanoseconds: -minutesAgo * 60_000_000_000)
        let reports = (0..<count).map { _ in
            StallReport(
                kind: .blocked,
                state: .recovered,
                startedAt: start,
                detectedAt: start,
                endedAt: start.advanced(byNanoseconds: 500_000_000),
                durationNs: 500_000_000,
                rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
                host: .init(name: "web1"),
                service: .init(name: service, version: release),
                process: .init(pid: 7),
                watched: .init(label: "main"),
                thread: .init(id: 7),
                cause: .init(verdict: verdict, summary: "It did not run."),
                culprit: .init(function: function, stack: 0, frame: 0),
                fingerprint: fingerprint(function),
                aliases: aliases
            )
        }
        _ = try await store.insert(try reports.map { try Arrival(json: $0.json(), team: "default", now: now) })
    }

    static func fingerprint(_ function: String) -> Fingerprint {
        .make(kind: .blocked, frames: [.init(address: 1, function: function, own: true)], modules: [])
    }

    static func record(
        _ state: RunRecord.State,
        id: ULID = .make(),
        startedMinutesAgo: Int64 = 120,
        minutesAgo: Int64
    ) throws -> Arrival {
        var run = RunRecord(
            id: id,
            startedAt: now.advanced(byNanoseconds: -startedMinutesAgo * 60_000_000_000),
            updatedAt: now.advanced(byNanoseconds: -minutesAgo * 60_000_000_000),
            host: .init(name: "web1"),
            service: .init(name: "shop"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        run.state = state
        return try Arrival(json: run.json(), team: "default", now: now)
    }
}
