import RunLoopKit
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
