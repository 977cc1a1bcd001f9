import Foundation
import TestSupport
import Testing

/// Stalls just above the threshold, in a process whose main loop and main actor are watched.
@Suite("Stalls of 250 to 300 ms", .serialized, .timeLimit(.minutes(60)))
struct ThresholdStallTests {
    private let directory = TemporaryDirectory(inMemory: true)

    @Test(
        "Every way to run code on a loop is reported as blocked once, in time, with its culprit"
    )
    func everyWay() async throws {
        // Trials that the machine has spoiled are repeated: if the watchdog gets no CPU time, a stall is over before
        // it can look.
        var left: [Outcome] = try await play([252, 254, 256, 260, 263, 268, 275, 282, 290, 298])
        #expect(left.count == 100)
        for attempt in 0..<5 where !left.isEmpty {
            let wrong = left.filter { !$0.isRight }
            for outcome in wrong where outcome.isCertain { Issue.record("\(attempt): \(outcome)") }
            left = []
            for outcome in wrong where !outcome.isCertain {
                left += try await play([Int(outcome.lengthNs / 1_000_000)], outcome.way)
            }
        }
        // One late detection may be the machine's fault; if every trial is late it is not.
        for outcome in left where outcome.isTimely && !outcome.isRight { Issue.record("each time: \(outcome)") }
    }

    /// A line of the host's.
    private struct Outcome: Decodable {
        var way: String
        var lengthNs, latenessNs, watchdogDelayNs: Int64
        var told: [Told]

        struct Told: Decodable {
            var kind: String
            var culprit: String?
            var detectionNs: Int64
            var summary: String
        }

        /// Whether the watchdog could look in time: the margin, without its wait for other candidates to mature.
        var isTimely: Bool { max(latenessNs, watchdogDelayNs) + 3_000_000 < lengthNs - 250_000_000 }

        /// Whether the machine is not to blame. A watchdog that is late by most of a tick may not count what it has
        /// missed. A late detection alone is not certain: the witness measures its own delay, not that of the
        /// watchdog's capture.
        var isCertain: Bool {
            guard isBlockedOnce else { return isTimely || max(latenessNs, watchdogDelayNs) < 30_000_000 }
            return isTimely && !isDetectedLate
        }
        var isDetectedLate: Bool { told.contains { $0.detectionNs > latestDetection } }
        var isBlockedOnce: Bool { told.count == 1 && told[0].kind == "blocked" }

        /// The latest time of detection: its end, or a tick after the threshold.
        var latestDetection: Int64 { min(lengthNs, 250_000_000 + 50_000_000) }

        /// Blocked, once. A stall that was over before the first look says so; any other has its culprit, and was
        /// detected while it lasted.
        var isRight: Bool {
            guard isBlockedOnce, let stall = told.first else { return false }
            if isTimely {
                return stall.culprit?.contains("standStill") == true && stall.detectionNs <= latestDetection
            }
            return stall.culprit != nil || stall.summary.contains("over before it was looked at")
        }
    }

    private func play(_ lengths: [Int], _ way: String? = nil) async throws -> [Outcome] {
        let arguments = [directory.path + "/reports", "1"] + lengths.map(String.init) + [way].compactMap { $0 }
        return try await onThread { try Self.run(arguments) }
    }

    private static func run(_ arguments: [String]) throws -> [Outcome] {
        let process = Process()
        process.executableURL = .built("threshold-host")
        process.arguments = arguments
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return try text.split(separator: "\n").map { try JSONDecoder().decode(Outcome.self, from: Data($0.utf8)) }
    }
}
