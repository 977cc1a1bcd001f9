public import StallReports

/// Compares two sets of stalls, fault by fault: this judges a run against a baseline. Based on figures alone.
public struct Comparison: Hashable, Sendable {
    /// The required certainty.
    public struct Rule: Hashable, Sendable {
        /// The probability of any false alarm in a whole comparison if nothing has changed.
        public var alarm = 0.01
        /// The probability up to which an unproven change is called doubtful, and the gate inconclusive.
        public var doubt = 0.05
        /// The least ratio of rates, or durations, that matters.
        public var leastRatio = 1.25

        /// Creates the default rule: one false alarm in a hundred, and a ratio of 1.25.
        public init() {}
    }

    /// The figures of one fault on one side.
    public struct Figures: Hashable, Sendable {
        /// The number of stalls, including those that were only counted.
        public var count: Int
        /// The watched time in which this fault could have been seen, in nanoseconds.
        public var watchedNs: Int64
        /// The known durations, without the time in which the stalls waited for a processor.
        public var lengthsNs: [Int64]
        /// How much the number varies between runs. Nil if that is not known.
        package var dispersion: Dispersion?

        /// Creates figures. The values are not checked.
        public init(count: Int, watchedNs: Int64, lengthsNs: [Int64]) {
            (self.count, self.watchedNs, self.lengthsNs) = (count, watchedNs, lengthsNs)
        }

        /// Per watched hour.
        public var perHour: Double { count == 0 ? 0 : Double(count) / (Double(watchedNs) / 3.6e12) }
        /// Zero if no duration is known.
        public var medianNs: Int64 { Int64(saturating: median) }
        var median: Double { Statistics.median(lengthsNs.map { Double($0) }) }
    }

    /// The kind of change of a fault.
    public enum Change: String, Hashable, Sendable {
        case newFault = "new"
        case worseRate = "more_often"
        case longer
    }

    /// One fault and one kind of change.
    public struct Item: Hashable, Sendable {
        /// The fault.
        public var fault: Fingerprint
        /// The kind of change that is tested.
        public var change: Change
        /// The figures of the baseline.
        public var before: Figures
        /// The figures of the judged run.
        public var after: Figures
        /// The probability of such figures if nothing has changed, corrected for all comparisons (Holm). 1 for so few stalls
        /// that nothing could be proven.
        public var probability: Double
        /// The ratio of the rates, or of the durations. Infinite for a new fault.
        public var ratio: Double
        /// How many stalls were counted as one because they come in bursts.
        package var stallsPerBurst = 1.0
    }

    /// All comparisons, in the order given.
    public let items: [Item]
    /// The required certainty.
    public let rule: Rule

    /// Compares the faults, each with its two sides.
    ///
    /// - Complexity: Dominated by sorting the durations.
    public init(_ faults: [(fault: Fingerprint, before: Figures, after: Figures)], by rule: Rule = Rule()) {
        self.rule = rule
        let tried = faults.flatMap { Self.items($0.fault, $0.before, $0.after) }
        // Comparisons that cannot prove anything, whatever their outcome, do not take part in the correction (Tarone, 1990).
        let able = tried.indices.filter { tried[$0].least <= rule.doubt }
        var items = tried.map(\.item)
        for (index, probability) in zip(able, Statistics.holm(able.map { items[$0].probability })) {
            items[index].probability = probability
        }
        for index in Set(items.indices).subtracting(able) { items[index].probability = 1 }
        self.items = items
    }

    private static func items(_ fault: Fingerprint, _ before: Figures, _ after: Figures) -> [(
        item: Item, least: Double
    )] {
        let burst = Dispersion.stallsPerBurst([before.dispersion, after.dispersion])
        var items = [rateItem(fault, before, after, burst)]
        // Fewer cannot reach the significance level, whatever their values.
        if Double(min(before.lengthsNs.count, after.lengthsNs.count)) >= 3 * burst {
            let (first, second) = (before.lengthsNs.map { Double($0) }, after.lengthsNs.map { Double($0) })
            let item = Item(
                fault: fault,
                change: .longer,
                before: before,
                after: after,
                probability: Statistics.larger(before: first, after: second, perBurst: burst),
                ratio: after.median / max(1, before.median),
                stallsPerBurst: burst
            )
            items.append((item, 0))
        }
        return items
    }

    private static func rateItem(_ fault: Fingerprint, _ before: Figures, _ after: Figures, _ burst: Double) -> (
        item: Item, least: Double
    ) {
        let (first, second) = (Double(max(0, before.watchedNs)), Double(max(0, after.watchedNs)))
        // Without watched time nothing is proven.
        let share = first > 0 && second > 0 ? second / (first + second) : 1
        // Rounded so that no part of a burst is evidence.
        let bursts = (
            before: Int(saturating: (Double(before.count) / burst).rounded(.up)),
            after: Int(saturating: (Double(after.count) / burst).rounded(.down))
        )
        let item = Item(
            fault: fault,
            change: before.count == 0 ? .newFault : .worseRate,
            before: before,
            after: after,
            probability: Statistics.risenRate(before: bursts.before, after: bursts.after, share: share),
            ratio: before.count == 0 ? .infinity : after.perHour / before.perHour,
            stallsPerBurst: burst
        )
        return (item, Statistics.leastRisenRate(bursts.before.addingSaturated(bursts.after), share: share))
    }

    /// Changes for the worse that are proven and large enough.
    public var proven: [Item] {
        items.filter { $0.after.count > 0 && $0.ratio >= rule.leastRatio && $0.probability <= rule.alarm }
    }

    /// Possible changes for the worse: changes that are not proven, but hardly chance; and new faults that occurred too rarely
    /// to decide.
    public var doubtful: [Item] {
        items.filter { item in
            guard item.after.count > 0, item.ratio >= rule.leastRatio, item.probability > rule.alarm else {
                return false
            }
            return item.change == .newFault || item.probability <= rule.doubt
        }
    }

    /// The number of stalls of a new fault that prove it, if nothing else is compared. Nil: no number does.
    static func leastNewStalls(beforeNs: Int64, afterNs: Int64, _ rule: Rule) -> Int? {
        guard beforeNs > 0, afterNs > 0 else { return nil }
        let share = Double(afterNs) / (Double(beforeNs) + Double(afterNs))
        return (1...1000).first { Statistics.leastRisenRate($0, share: share) <= rule.alarm }
    }
}
