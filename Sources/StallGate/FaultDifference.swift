public import StallReports

/// The change of each fault between two sets of stalls, by the statistics of the gate: of two runs, releases or days. A value
/// based on figures alone.
public struct FaultDifference: Hashable, Sendable {
    /// The kind of change of a fault.
    public enum Change: String, Hashable, Sendable, CaseIterable {
        /// It did not occur before.
        case new
        /// It occurred more often, or lasted longer, and that is proven.
        case worse
        /// It does not occur any more.
        case gone
        /// It occurred less often, or was shorter, and that is proven.
        case better
        /// No difference is proven.
        case unchanged
    }

    /// One fault.
    public struct Item: Hashable, Sendable {
        /// The fault.
        public var fingerprint: Fingerprint
        /// The culprit's name. Nil if no report contains it.
        public var function: String?
        /// Whether it became worse or better.
        public var change: Change
        /// Whether chance does not explain the change. Always true for `worse` and `better`, never for `unchanged`.
        public var isProven: Bool
        /// The probability of such figures by chance alone, corrected for all faults and for both directions. 1 for so few
        /// stalls that nothing could be proven.
        public var probability: Double
        /// The figures of the earlier set.
        public var before: Comparison.Figures
        /// The figures of the later set.
        public var after: Comparison.Figures
    }

    /// Changes for the worse first, and proven ones before others.
    public let items: [Item]
    /// The number of stalls of the earlier set that waited for a processor. They were caused by the machine, and are not in the figures.
    public let starvedBefore: Int
    /// The same for the later set.
    public let starvedAfter: Int

    /// - Parameters:
    ///   - before: The earlier set.
    ///   - after: The later set.
    ///   - rule: The required certainty of the whole: half of it for each direction.
    public init(_ before: Baseline, _ after: Baseline, by rule: Comparison.Rule = .init()) {
        let pairs = before.pairs(with: after)
        let sides = pairs.map { pair in
            (
                fault: pair.fingerprint, before: pair.before.figures(of: before), after: pair.now.figures(of: after)
            )
        }
        var half = rule
        (half.alarm, half.doubt) = (rule.alarm / 2, rule.doubt / 2)
        let risen = Comparison(sides, by: half).most
        let fallen = Comparison(sides.map { ($0.fault, before: $0.after, after: $0.before) }, by: half).most
        let found = zip(pairs, sides).map { pair, side in
            Item(
                pair,
                side.before,
                side.after,
                risen: risen[side.fault] ?? (false, 1),
                fallen: fallen[side.fault] ?? (false, 1)
            )
        }
        items = found.filter { $0.before.count.addingSaturated($0.after.count) > 0 }.sorted(by: Item.isFirst)
        (starvedBefore, starvedAfter) = (before.starved, after.starved)
    }

    /// The number of faults with this change.
    public func count(_ change: Change) -> Int { items.count { $0.change == change } }
}

extension FaultDifference.Item {
    fileprivate init(
        _ pair: FaultPair,
        _ before: Comparison.Figures,
        _ after: Comparison.Figures,
        risen: (proven: Bool, probability: Double),
        fallen: (proven: Bool, probability: Double)
    ) {
        (fingerprint, function) = (pair.fingerprint, pair.now?.function ?? pair.before?.function)
        (self.before, self.after) = (before, after)
        isProven = risen.proven || fallen.proven
        if before.count == 0 {
            (change, probability) = (.new, risen.probability)
        } else if after.count == 0 {
            (change, probability) = (.gone, fallen.probability)
        } else if risen.proven {
            // This applies even if the fault got better in the other respect: the change for the worse needs attention.
            (change, probability) = (.worse, risen.probability)
        } else if fallen.proven {
            (change, probability) = (.better, fallen.probability)
        } else {
            (change, probability) = (.unchanged, min(risen.probability, fallen.probability))
        }
    }

    fileprivate static func isFirst(_ left: Self, _ right: Self) -> Bool {
        let order = FaultDifference.Change.allCases
        let ranks = [left, right].map { order.firstIndex(of: $0.change) ?? order.count }
        if ranks[0] != ranks[1] { return ranks[0] < ranks[1] }
        if left.isProven != right.isProven { return left.isProven }
        let counts = [left, right].map { $0.before.count.addingSaturated($0.after.count) }
        return (counts[1], left.fingerprint.rawValue) < (counts[0], right.fingerprint.rawValue)
    }
}

extension Comparison {
    /// The most certain change of each fault for the worse: whether it is proven, and its probability by chance.
    fileprivate var most: [Fingerprint: (proven: Bool, probability: Double)] {
        var most: [Fingerprint: (proven: Bool, probability: Double)] = [:]
        for (items, isProven) in [(items.filter { $0.ratio >= 1 }, false), (proven, true)] {
            for item in items {
                let known = most[item.fault].flatMap { $0.proven == isProven ? $0.probability : nil } ?? 1
                most[item.fault] = (isProven, min(known, item.probability))
            }
        }
        return most
    }
}

/// One fault in two sets of stalls. At least one of them contains it.
struct FaultPair {
    let before: Baseline.Fault?
    let now: Baseline.Fault?
    /// Its later fingerprint, if it still occurs.
    let fingerprint: Fingerprint

    init(now: Baseline.Fault, before: Baseline.Fault?) {
        (self.before, self.now, fingerprint) = (before, now, now.fingerprint)
    }

    init(gone: Baseline.Fault) { (before, now, fingerprint) = (gone, nil, gone.fingerprint) }
}

extension Baseline.Fault? {
    /// The figures in a set that may not contain the fault.
    func figures(of set: Baseline, countingStarved: Bool = false) -> Comparison.Figures {
        self?.figures(countingStarved: countingStarved) ?? .init(count: 0, watchedNs: set.watchedNs, lengthsNs: [])
    }
}

extension Baseline {
    /// The number of stalls that waited for a processor.
    var starved: Int { faults.map(\.starved).saturatingSum() }

    /// The faults of this set and a later one, matched by any of their fingerprints: first those of the later set, then those
    /// that no longer occur.
    func pairs(with current: Baseline) -> [FaultPair] {
        let earlier = merged(like: current)
        var places: [Fingerprint: Int] = [:]
        for (index, fault) in earlier.faults.enumerated() {
            for name in [fault.fingerprint] + fault.aliases { places[name] = index }
        }
        var taken: Set<Int> = []
        let now = current.faults.map { fault in
            let index = ([fault.fingerprint] + fault.aliases).lazy.compactMap { places[$0] }.first
            if let index { taken.insert(index) }
            return FaultPair(now: fault, before: index.map { earlier.faults[$0] })
        }
        let gone = earlier.faults.indices.filter { !taken.contains($0) }
        return now + gone.map { FaultPair(gone: earlier.faults[$0]) }
    }
}

/// The stalls of one fault that one report, or one line of a run record, represents. There may be a million of these values, so
/// each refers to its report's outline instead of copying it.
struct Occurrence {
    private enum Source {
        case report(of: [StallOutline], index: Int)
        case counted(Counted)
    }

    /// Stalls without a report, with what is known from reports of the same fault.
    private final class Counted {
        let fault: RunRecord.Repeated
        let service: String?
        let label: String?
        let type: WatchedType?
        let verdict: StallReports.Verdict?

        init(_ fault: RunRecord.Repeated, in run: RunRecord, like known: StallOutline?) {
            (self.fault, service) = (fault, run.service?.name)
            (label, type, verdict) = (fault.label ?? known?.label, fault.type ?? known?.type, known?.verdict)
        }
    }

    private let source: Source

    /// Nil for stalls without a report.
    var stall: StallOutline? {
        switch source {
        case .report(let stalls, let index): stalls[index]
        case .counted: nil
        }
    }

    /// The run record's data, if `stall` is nil.
    var countedOnly: RunRecord.Repeated? {
        switch source {
        case .report: nil
        case .counted(let counted): counted.fault
        }
    }

    private func value<Value>(_ ofReport: (StallOutline) -> Value, _ ofCounted: (Counted) -> Value) -> Value {
        switch source {
        case .report(let stalls, let index): ofReport(stalls[index])
        case .counted(let counted): ofCounted(counted)
        }
    }

    var fingerprint: Fingerprint { value({ $0.fingerprint }, { $0.fault.fingerprint }) }
    /// Nil if it is not known.
    var service: String? { value({ $0.service }, { $0.service }) }
    var label: String? { value({ $0.label }, { $0.label }) }
    var type: WatchedType? { value({ $0.type }, { $0.type }) }
    var verdict: StallReports.Verdict? { value({ $0.verdict }, { $0.verdict }) }
    /// The number of stalls, including those that were only counted.
    var count: Int { value({ max(0, $0.suppressed).addingSaturated(1) }, { max(0, $0.fault.repeats.count) }) }
    /// Their total duration, as far as known.
    var totalNs: Int64 {
        value(
            { $0.durationNs.addingSaturated(max(0, $0.repeats?.totalNs ?? 0)) },
            { max(0, $0.fault.repeats.totalNs) }
        )
    }
    var longestNs: Int64 { value({ $0.longestNs }, { max(0, $0.fault.repeats.longestNs) }) }
    var isOngoing: Bool { value({ $0.state == .ongoing }, { _ in false }) }

    /// All stalls in reports and run records. They are made when they are needed: there may be a million.
    struct All: RandomAccessCollection {
        private let stalls: [StallOutline]
        private let counted: [Occurrence]
        /// Nil for all of them.
        private var rows: [Int]?

        init(in overview: ReportReader.Overview) {
            stalls = overview.stalls
            let counted = overview.runs.flatMap { run in (run.repeated ?? []).map { (run, $0) } }
            // Stalls that were only counted get further data from reports of the same fault.
            let known =
                counted.isEmpty
                ? [:] : Dictionary(stalls.oncePerTraits.map { ($0.fingerprint, $0) }) { first, _ in first }
            self.counted = counted.map { run, fault in
                Occurrence(source: .counted(Counted(fault, in: run, like: known[fault.fingerprint])))
            }
        }

        var startIndex: Int { 0 }
        var endIndex: Int { rows?.count ?? stalls.count + counted.count }

        subscript(position: Int) -> Occurrence {
            let row = rows?[position] ?? position
            return row < stalls.count
                ? Occurrence(source: .report(of: stalls, index: row)) : counted[row - stalls.count]
        }

        func without(_ isLeftOut: (Occurrence) -> Bool) -> All {
            var rest = self
            rest.rows = indices.filter { !isLeftOut(self[$0]) }
            return rest
        }
    }
}
