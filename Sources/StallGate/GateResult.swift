public import StallReports

/// What a gate found. Made by ``Gate/judge(_:by:)``.
public struct GateResult: Hashable, Sendable {
    /// What a gate says. The raw values are those in its JSON.
    public enum Verdict: String, Hashable, Sendable, Codable {
        case within
        case over
        case cannotJudge = "cannot_judge"
    }

    /// The limits that were judged by.
    public let budget: Budget
    /// Nothing is hidden by doubt: stalls over budget are listed even if the verdict is `.cannotJudge`.
    public let doubts: [Doubt]
    /// Stalls that count.
    public let counted: [StallReport]
    /// Stalls that are allowed.
    public let allowed: [StallReport]
    /// All that were found, in the order of `ReportReader.Contents`. Empty when the directory could not be read.
    public let runs: [RunRecord]
    /// What else faults are known by.
    let names: FaultNames

    /// Stalls that count, with those that were not reported one by one.
    public var stallCount: Int {
        (counted.map { max(0, $0.suppressed) } + countedOnly.map { max(0, $0.repeats.count) })
            .saturatingSum(from: counted.count)
    }

    /// Stalls that count and stand in no report yet, by their faults.
    public var countedOnly: [RunRecord.Repeated] {
        runs.flatMap { $0.repeated ?? [] }
            .filter { fault in !budget.allows(fault.fingerprint, names) }
    }

    /// What is allowed and did not happen: mended, or misspelt.
    public var unusedAllowances: [FingerprintPrefix] {
        let faults = allowed.map(\.fingerprint) + runs.flatMap { $0.repeated ?? [] }.map(\.fingerprint)
        let found = faults.reduce(into: Set()) { $0.formUnion(names.all(of: $1)) }
        return budget.allowed.filter { prefix in !found.contains(where: prefix.matches) }
    }

    /// Whether `stallCount` is above the budget's `maxStalls`. False without that limit.
    public var hasTooMany: Bool { budget.maxStalls.map { stallCount > $0 } ?? false }

    /// Stalls that count and lasted too long, or stand for one that did and was only counted; the longest first.
    public var tooLong: [StallReport] {
        guard let limit = budget.maxDurationNs else { return [] }
        return counted.filter { $0.longestNs > limit }.sorted { $0.longestNs > $1.longestNs }
    }

    /// Faults that count, stand in no report yet, and lasted too long at least once; the longest first.
    public var tooLongCountedOnly: [RunRecord.Repeated] {
        guard let limit = budget.maxDurationNs else { return [] }
        return countedOnly.filter { $0.repeats.longestNs > limit }
            .sorted { $0.repeats.longestNs > $1.repeats.longestNs }
    }

    /// `.cannotJudge` while there is any doubt, even if stalls are over budget.
    public var verdict: Verdict {
        if !doubts.isEmpty { return .cannotJudge }
        return hasTooMany || !tooLong.isEmpty || !tooLongCountedOnly.isEmpty ? .over : .within
    }

    /// Time that was watched, all things in all runs together.
    public var watchedNs: Int64 { runs.map(\.watchedTotalNs).saturatingSum() }
}

extension RunRecord {
    var watchedTotalNs: Int64 { watched.map { max(0, $0.watchedNs) }.saturatingSum() }
}

extension StallReport {
    /// Its own length, or that of the longest one before it that was only counted.
    var longestNs: Int64 { max(durationNs, repeats?.longestNs ?? 0) }
}
