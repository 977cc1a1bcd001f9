public import StallReading
public import StallReports

/// The result of a gate. Made by ``Gate/judge(_:by:)``.
public struct GateResult: Hashable, Sendable {
    /// The gate's decision. The raw values are used in its JSON.
    public enum Verdict: String, Hashable, Sendable, Codable {
        case within
        case over
        case cannotJudge = "cannot_judge"
        /// The data does not show whether it has become worse.
        case inconclusive
    }

    /// The limits that were applied.
    public let budget: Budget
    /// Doubts. They hide nothing: stalls over budget are listed even if the verdict is `.cannotJudge`.
    public internal(set) var doubts: [Doubt]
    /// Stalls that count.
    public let counted: [StallOutline]
    /// Stalls that are allowed, or that belong to a rule that is switched off.
    public let allowed: [StallOutline]
    /// Stalls that count and have no report yet, by fault.
    public let countedOnly: [RunRecord.Repeated]
    /// The same of stalls that are allowed, or that belong to a rule that is switched off.
    var allowedCountedOnly: [RunRecord.Repeated] = []
    /// A report of their fault, which the choice may have left out.
    var examples: [Fingerprint: StallOutline] = [:]
    /// All runs found, in the order of `ReportReader.Overview`. Empty if the directory could not be read.
    public let runs: [RunRecord]
    /// The other fingerprints of faults.
    let names: FaultNames
    /// The findings about the run, from the budget's limits for all stalls and from its rules.
    public internal(set) var findings: [Finding] = []
    /// Why the comparison with the baseline is inconclusive: the run was too short, or in another environment. One line each.
    public internal(set) var inconclusive: [String] = []
    /// The basis of the comparison with the baseline. One line each; empty without a baseline.
    public internal(set) var notes: [String] = []
    /// Stalls that no limit is for. Nil if there are none.
    var unlimited: Unlimited?
    /// How often the command with these stalls was run.
    public internal(set) var repeats = 1

    /// The number of stalls that count, including those that were not reported individually.
    public var stallCount: Int { Self.count(counted, countedOnly) }

    /// The same of stalls that are allowed, or that belong to a rule that is switched off.
    var allowedCount: Int { Self.count(allowed, allowedCountedOnly) }

    private static func count(_ counted: [StallOutline], _ countedOnly: [RunRecord.Repeated]) -> Int {
        var reported = counted.count
        for stall in counted { reported = reported.addingSaturated(max(0, stall.suppressed)) }
        return countedOnly.map { max(0, $0.repeats.count) }.saturatingSum(from: reported)
    }

    /// Allowances for faults that did not occur: fixed, or misspelt.
    public var unusedAllowances: [FingerprintPrefix] {
        let wanted = budget.allowed + budget.allowances.map(\.fault)
        // There may be a million stalls.
        if wanted.isEmpty { return [] }
        // The stalls of an expired allowance count, but it was used.
        let faults =
            (allowed.oncePerTraits + counted.oncePerTraits).map(\.fingerprint)
            + runs.flatMap { $0.repeated ?? [] }.map(\.fingerprint)
        return wanted.filter { prefix in !faults.contains { names.hasName($0, like: prefix) } }
    }

    /// Whether there are more stalls than the budget's `maxStalls`. False without that limit.
    public var hasTooMany: Bool { tooMany != nil }

    var tooMany: Finding? { findings.first { $0.rule == .stallCount && $0.budget == nil } }

    /// Stalls that count and lasted too long, or represent one that did and was only counted; the longest first.
    public var tooLong: [StallOutline] {
        guard let limit = budget.maxDurationNs else { return [] }
        return counted.filter { $0.longestNs > limit }.sorted { $0.longestNs > $1.longestNs }
    }

    /// Faults that count, have no report yet, and lasted too long at least once; the longest first.
    public var tooLongCountedOnly: [RunRecord.Repeated] {
        guard let limit = budget.maxDurationNs else { return [] }
        return countedOnly.filter { $0.repeats.longestNs > limit }
            .sorted { $0.repeats.longestNs > $1.repeats.longestNs }
    }

    /// `.cannotJudge` while there is any doubt, even if stalls are over budget.
    public var verdict: Verdict {
        if !doubts.isEmpty { return .cannotJudge }
        if findings.contains(where: { $0.severity == .error }) { return .over }
        return findings.contains { $0.severity == .doubtful } || !inconclusive.isEmpty ? .inconclusive : .within
    }

    /// Runs whose process ended without closing them. They are judged by what they left: a process keeps a live record to its
    /// last moment.
    public var cutShort: [RunRecord] { runs.filter { $0.state == .terminated } }

    /// The watched time of all watched loops and runs, added up.
    public var watchedNs: Int64 { runs.map(\.watchedTotalNs).saturatingSum() }
}

extension GateResult {
    /// Stalls that a budget file says nothing about: without a line about them, 'within' would say too much.
    struct Unlimited: Hashable {
        let count: Int
        /// Those with most stalls first.
        let faults: [Fingerprint]

        init?(_ occurrences: [Occurrence], _ names: FaultNames) {
            var counts: [Fingerprint: Int64] = [:]
            for occurrence in occurrences {
                let known = counts[occurrence.fingerprint] ?? 0
                counts[occurrence.fingerprint] = known.addingSaturated(Int64(clamping: occurrence.count))
            }
            count = Int(clamping: counts.values.saturatingSum())
            faults = names.greatestFirst(counts) { $0.addingSaturated($1) }
            if count == 0 { return nil }
        }

        var message: String {
            "no limit is for \(quantity(count, "stall")) of \(quantity(faults.count, "fault")): give --max-stalls or --max-duration, or a last budget "
                + "without 'match'"
        }
    }
}

extension RunRecord {
    var watchedTotalNs: Int64 { watched.map { max(0, $0.watchedNs) }.saturatingSum() }
}

extension StallOutline {
    /// Its own duration, or that of the longest one before it that was only counted.
    var longestNs: Int64 { max(durationNs, repeats?.longestNs ?? 0) }
}
