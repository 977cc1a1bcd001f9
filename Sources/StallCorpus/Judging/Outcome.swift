import StallReports

/// The outcome of one scenario.
package struct Outcome: Codable, Sendable {
    package var name: String
    package var part: Scenario.Part
    package var isStall: Bool
    /// The stalls that were made, each with its report.
    var stalls: [StallFinding] = []
    /// Reports without a stall that was made.
    var falseAlarms: [FoundStall] = []
    /// Further reports of a stall that was already reported.
    var toldAgain: [FoundStall] = []
    /// Reports of turns that were meant to be short and really were long,
    /// and of the parts of a stall whose thread was kept from a CPU.
    var excused = 0
    /// The number of times it was played.
    package var attempts = 1
    package var skipped: String?
    package var failure: String?

    /// Whether everything was reported correctly. A skipped scenario does not count as a failure.
    package var passed: Bool {
        skipped != nil || (failure == nil && falseAlarms.isEmpty && toldAgain.isEmpty && stalls.allSatisfy(\.passed))
    }
}

/// A stall that was made.
struct StallFinding: Codable, Sendable {
    var expected: Expected
    /// Nil if it was missed.
    var found: FoundStall?
    var isKindRight = false
    var isVerdictRight = false
    var isCulpritRight = false
    /// Nil if no owner is expected.
    var isOwnerRight: Bool?
    /// Nil if it cannot be compared.
    var startErrorMs: Double?
    var endErrorMs: Double?

    /// The expected report, and what the stalled thread measured of itself.
    struct Expected: Codable, Sendable {
        var kinds: [String]
        var verdicts: [String]
        var culprit: String
        var owner: String?
        var lengthMs: Double
        var cpuMs: Double
        var runDelayMs: Double
    }

    var passed: Bool { found != nil && isKindRight && isVerdictRight && isCulpritRight && isOwnerRight != false }
}

/// A stall as it was reported.
struct FoundStall: Codable, Sendable {
    var id: String
    var kind: String
    var label: String
    var verdict: String
    var culprit: String?
    var owner: String?
    var summary: String
    var lengthMs: Double
    /// From the reported start to the detection.
    var detectedAfterMs: Double

    init(_ report: StallReport) {
        id = "\(report.id)"
        kind = report.kind.rawValue
        label = report.watched.label
        verdict = report.cause.verdict.rawValue
        culprit = report.culprit?.function
        owner = report.ownerName
        summary = report.cause.summary
        lengthMs = Double(report.durationNs) / 1e6
        detectedAfterMs = Double(report.detectedAt.nanoseconds(since: report.startedAt)) / 1e6
    }
}
