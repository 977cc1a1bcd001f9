import RunLoopKit
import StallDetection
import StallReports

extension StallCategory {
    /// Its name in reports.
    var kind: StallKind {
        switch self {
        case .blocked: .blocked
        case .congested: .congested
        case .repeated: .repeated
        }
    }
}

extension StallRule {
    /// The part of the rule by which such a stall is one.
    func reportRule(for category: StallCategory) -> StallReport.Rule {
        let (tick, all) = (tick.nanoseconds, ticks)
        return switch category {
        case .blocked: .init(name: .blocked, tickNs: tick, ticks: all)
        case .congested: .init(name: .congested, tickNs: tick, ticks: congested?.ticks ?? all)
        case .repeated: .init(name: .repeated, tickNs: tick, ticks: repeated?.ticks ?? 1, turns: repeated?.turns)
        }
    }
}

extension RunRecord.LengthCount {
    /// In decades. Nil without a turn.
    static func of(_ histogram: TurnHistogram) -> [Self]? {
        guard histogram.longest > 0 else { return nil }
        let bounds = (4...10).map { power in (0..<power).reduce(UInt64(1)) { product, _ in product * 10 } }
        let counts = zip(bounds.map { Int64($0) } + [nil], histogram.counts(upTo: bounds))
        return counts.compactMap { $1 > 0 ? .init(upToNs: $0, count: $1) : nil }
    }
}

extension StallObservation {
    /// The rule by which it is one.
    var reportRule: StallReport.Rule {
        var told = rule.reportRule(for: category)
        told.name = kind
        return told
    }
}

extension TurnDurations {
    /// Nil without a turn.
    init?(_ histogram: TurnHistogram) {
        guard histogram.longest > 0 else { return nil }
        self.init(
            count: histogram.count,
            p50Ns: Int64(clamping: histogram.length(ofShare: 0.5)),
            p99Ns: Int64(clamping: histogram.length(ofShare: 0.99)),
            maxNs: Int64(clamping: histogram.longest)
        )
    }
}
