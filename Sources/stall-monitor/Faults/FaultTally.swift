import StallReports

/// Adds stalls up by their faults, one at a time: what it keeps grows with the faults, not with the stalls.
struct FaultTally {
    let span: TimeSpan
    private var faults: [Fingerprint: Fault] = [:]

    init(span: TimeSpan) { self.span = span }

    mutating func add(_ stall: StallOutline) {
        faults[
            stall.fingerprint,
            default: Fault(fingerprint: stall.fingerprint, firstAt: stall.startedAt, lastAt: stall.startedAt)
        ].add(stall, in: span)
    }

    /// Stalls that were only counted, and stand in no report.
    mutating func add(_ repeated: RunRecord.Repeated) {
        let repeats = repeated.repeats
        faults[
            repeated.fingerprint,
            default: Fault(fingerprint: repeated.fingerprint, firstAt: repeats.firstAt, lastAt: repeats.lastAt)
        ].add(repeats, in: span)
    }

    /// Each fault once, whatever it is known by.
    ///
    /// - Parameter watchedNs: how long was watched; 0 if nobody knows.
    func all(watchedNs: Int64, by order: FaultOrder) -> [Fault] {
        let names = FaultNames(pairs: faults.values.map { ($0.fingerprint, $0.aliases) })
        var merged: [Set<Fingerprint>: Fault] = [:]
        for fault in faults.values.sorted(by: { $0.fingerprint.rawValue < $1.fingerprint.rawValue }) {
            let group = names.all(of: fault.fingerprint)
            if merged[group] == nil { merged[group] = fault } else { merged[group]?.add(fault) }
        }
        return merged.map { group, fault in
            var fault = fault
            fault.aliases = group.subtracting([fault.fingerprint]).sorted { $0.rawValue < $1.rawValue }
            fault.share = watchedNs > 0 ? min(1, Double(fault.totalNs) / Double(watchedNs)) : nil
            return fault
        }
        .sorted(by: order.isBefore)
    }
}
