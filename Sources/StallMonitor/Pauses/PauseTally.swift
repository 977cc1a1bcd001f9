import RunLoopKit
import StallReports

/// The pauses of a run so far: the latest one by one, all as sums.
struct PauseTally: Hashable, Sendable {
    private(set) var latest: [RunRecord.Pause] = []
    private(set) var totals: [PauseKind: RunRecord.PauseTotal] = [:]

    /// Pauses, not counting what is none: scopes, the watchdog's own lateness, a clock that was set.
    var count: Int64 {
        let counted: [PauseKind] = [.suspended, .frozen, .traced, .stopped, .monitoringPaused]
        return counted.reduce(0) { $0 + (totals[$1]?.count ?? 0) }
    }

    mutating func add(_ pause: RunRecord.Pause) {
        totals[pause.kind, default: .init()].add(pause.durationNs)
        if latest.count == RunRecord.PauseLog.recordLimit { latest.removeFirst() }
        latest.append(pause)
    }

    /// One more of a kind that is only summed.
    mutating func sum(_ kind: PauseKind, lasting length: Duration) {
        totals[kind, default: .init()].add(length.nanoseconds)
    }

    var log: RunRecord.PauseLog {
        .init(latest: latest, totals: Dictionary(uniqueKeysWithValues: totals.map { ($0.rawValue, $1) }))
    }
}

extension RunRecord.PauseTotal {
    /// Saturated: a clock that is set to and fro adds up to more than there is room for.
    fileprivate mutating func add(_ length: Int64) {
        count = count.addingSaturated(1)
        durationNs = durationNs.addingSaturated(length)
    }
}
