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
        let sides = pairs.figures(before, after)
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
        // Each direction was tested by half of the required certainty.
        probability = min(1, 2 * probability)
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

extension [FaultPair] {
    /// The figures of each fault in both sets.
    ///
    /// - Parameter countingStarved: Whether stalls caused by the machine count.
    func figures(
        _ before: Baseline,
        _ after: Baseline,
        countingStarved: Bool = false
    ) -> [(fault: Fingerprint, before: Comparison.Figures, after: Comparison.Figures)] {
        func figures(_ fault: Baseline.Fault?, _ set: Baseline) -> Comparison.Figures {
            fault?.figures(countingStarved: countingStarved) ?? .init(count: 0, watchedNs: set.watchedNs, lengthsNs: [])
        }
        return map { ($0.fingerprint, figures($0.before, before), figures($0.now, after)) }
    }
}

extension Baseline {
    /// The number of stalls that waited for a processor.
    var starved: Int { faults.map(\.starved).saturatingSum() }

    /// The faults of this set and a later one, matched by any of their fingerprints: first those of the later set, then those
    /// that no longer occur.
    func pairs(with current: Baseline) -> [FaultPair] {
        let current = current.merged(like: self)
        let earlier = merged(like: current)
        var places: [Fingerprint: Int] = [:]
        for (index, fault) in earlier.faults.enumerated() {
            for name in fault.names { places[name] = index }
        }
        var taken: Set<Int> = []
        let now = current.faults.map { fault in
            let index = fault.names.lazy.compactMap { places[$0] }.first
            if let index { taken.insert(index) }
            return FaultPair(now: fault, before: index.map { earlier.faults[$0] })
        }
        let gone = earlier.faults.indices.filter { !taken.contains($0) }
        return now + gone.map { FaultPair(gone: earlier.faults[$0]) }
    }

    /// Merges faults that another baseline shows to be the same: compared separately with it, each would seem to occur more or
    /// less often.
    func merged(like other: Baseline) -> Baseline {
        let names = other.faults.enumerated().flatMap { index, fault in
            fault.names.map { ($0, index) }
        }
        let groups = Dictionary(names) { first, _ in first }
        var merged = self
        merged.faults = []
        var places: [Int: Int] = [:]
        for fault in faults {
            let group = fault.names.lazy.compactMap { groups[$0] }.first
            if let place = group.flatMap({ places[$0] }) {
                merged.faults[place].add(fault)
            } else {
                if let group { places[group] = merged.faults.count }
                merged.faults.append(fault)
            }
        }
        return merged
    }
}

extension Baseline.Fault {
    /// All its fingerprints.
    var names: [Fingerprint] { [fingerprint] + aliases }

    /// Adds another fault that is the same. Counts of different watched times are scaled to the shorter one, so that they prove
    /// no more than before.
    fileprivate mutating func add(_ other: Self) {
        let least = min(watchedNs, other.watchedNs)
        count = scaled(count, to: least).addingSaturated(other.scaled(other.count, to: least))
        starved = scaled(starved, to: least).addingSaturated(other.scaled(other.starved, to: least))
        watchedNs = least
        lengthsNs = Array((lengthsNs + other.lengthsNs).prefix(Baseline.mostLengths))
        dispersion = [dispersion, other.dispersion].compactMap(\.self).max { $0.index < $1.index }
        aliases = Set(aliases + other.names).subtracting([fingerprint])
            .sorted { $0.rawValue < $1.rawValue }
        function = function ?? other.function
        other.loops?.forEach { note($0) }
    }

    private func scaled(_ number: Int, to timeNs: Int64) -> Int {
        timeNs < watchedNs ? Int(saturating: (Double(number) * Double(timeNs) / Double(watchedNs)).rounded()) : number
    }
}
