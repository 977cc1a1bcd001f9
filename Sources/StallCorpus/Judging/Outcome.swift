import StallReports

/// What became of one scenario.
package struct Outcome: Codable, Sendable {
    package var name: String
    package var part: Scenario.Part
    package var isStall: Bool
    /// The stalls that were made, each with what was reported of it.
    var stalls: [StallFinding] = []
    /// Reports of nothing that was made.
    var falseAlarms: [FoundStall] = []
    /// Further reports of a stall that was reported already.
    var toldAgain: [FoundStall] = []
    /// Reports of turns that were to be short and really were not, and of the pieces of a stall whose thread was kept from a CPU.
    var excused = 0
    /// How often it was played.
    package var attempts = 1
    package var skipped: String?
    package var failure: String?

    /// Whether all is as it should be. A scenario that was skipped is no failure.
    package var passed: Bool {
        skipped != nil || (failure == nil && falseAlarms.isEmpty && toldAgain.isEmpty && stalls.allSatisfy(\.passed))
    }
}

/// A stall that was made.
struct StallFinding: Codable, Sendable {
    var expected: Expected
    /// Nil: it was missed.
    var found: FoundStall?
    var isKindRight = false
    var isVerdictRight = false
    var isCulpritRight = false
    /// Nil where there is none to be named.
    var isOwnerRight: Bool?
    /// Nil where it cannot be compared.
    var startErrorMs: Double?
    var endErrorMs: Double?

    /// What should have been reported, and what the stalled thread measured of itself.
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

/// What was reported.
struct FoundStall: Codable, Sendable {
    var id: String
    var kind: String
    var label: String
    var verdict: String
    var culprit: String?
    var owner: String?
    var summary: String
    var lengthMs: Double
    /// From the start as reported to the detection.
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
