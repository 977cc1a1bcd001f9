public import StallReports

/// Judges a run against a baseline. What only shows when stalls are counted that waited for a processor is not held against the code.
struct BaselineJudge {
    private let baseline: Baseline
    private let current: Baseline
    private let rule: Comparison.Rule
    private let faults: [Pair]
    private let functions: [Fingerprint: String?]

    private struct Pair {
        let before: Baseline.Fault?
        let now: Baseline.Fault?

        /// One of them is there.
        var fault: Baseline.Fault? { now ?? before }
    }

    /// Nil without a run record: that is a doubt already.
    ///
    /// - Parameter occurrences: those that count.
    init?(
        _ baseline: Baseline,
        _ overview: ReportReader.Overview,
        _ occurrences: [Occurrence],
        _ names: FaultNames,
        _ rule: Comparison.Rule = .init()
    ) {
        guard let current = Baseline(overview, at: baseline.recordedAt, occurrences) else { return nil }
        (self.baseline, self.current, self.rule) = (baseline, current, rule)
        faults = Self.pairs(baseline.merged(like: current), current)
        functions = Dictionary(faults.lazy.compactMap(\.fault).map { ($0.fingerprint, $0.function) }) { first, _ in
            first
        }
    }

    /// Each fault with what it was.
    private static func pairs(_ baseline: Baseline, _ current: Baseline) -> [Pair] {
        var places: [Fingerprint: Int] = [:]
        for (index, fault) in baseline.faults.enumerated() {
            for name in [fault.fingerprint] + fault.aliases { places[name] = index }
        }
        var taken: Set<Int> = []
        let now = current.faults.map { fault in
            let index = ([fault.fingerprint] + fault.aliases).lazy.compactMap { places[$0] }.first
            if let index { taken.insert(index) }
            return Pair(before: index.map { baseline.faults[$0] }, now: fault)
        }
        let gone = baseline.faults.indices.filter { !taken.contains($0) }
        return now + gone.map { Pair(before: baseline.faults[$0], now: nil) }
    }

    private func compared(countingStarved: Bool) -> Comparison {
        Comparison(
            faults.compactMap { pair in
                guard let fault = pair.fault else { return nil }
                return (
                    fault.fingerprint,
                    figures(pair.before, baseline.watchedNs, countingStarved),
                    figures(pair.now, current.watchedNs, countingStarved)
                )
            },
            by: rule
        )
    }

    private func figures(_ fault: Baseline.Fault?, _ watchedNs: Int64, _ countingStarved: Bool) -> Comparison.Figures {
        fault?.figures(countingStarved: countingStarved) ?? .init(count: 0, watchedNs: watchedNs, lengthsNs: [])
    }

    func add(to result: inout GateResult) {
        guard current.environment == baseline.environment else {
            result.inconclusive.append(
                "the baseline is of \(baseline.environment), and this run of \(current.environment): only like is compared; record one here"
            )
            return
        }
        if let reason = tooShort { result.inconclusive.append(reason) }
        let (code, all) = (compared(countingStarved: false), compared(countingStarved: true))
        result.findings += code.proven.map { finding($0, isStarved && $0.change != .newFault ? .doubtful : .error) }
        result.findings += code.doubtful.map { finding($0, .doubtful) }
        let told = Set((code.proven + code.doubtful).map(\.fault))
        result.findings += all.proven.filter { !told.contains($0.fault) }.map {
            finding($0, .doubtful, isMachine: true)
        }
        result.notes += notes
    }

    /// What came once in a run of the baseline would as soon be missed as seen.
    private var tooShort: String? {
        let one = baseline.watchedNs / Int64(max(1, baseline.runs))
        guard current.watchedNs < one / 2 else { return nil }
        return
            "it watched for \(Figure.length(current.watchedNs)), and a run of the baseline for \(Figure.length(one)): "
            + "what comes once in a run would be missed; let it run as long, or repeat it"
    }

    /// Whether the machine held up so many stalls more than in the baseline that no figure of this run is the code's.
    private var isStarved: Bool {
        starvedShare(current) >= 0.25 && starvedShare(current) >= 2 * starvedShare(baseline)
    }

    private func starvedShare(_ baseline: Baseline) -> Double {
        let starved = baseline.faults.map(\.starved).saturatingSum()
        let all = baseline.faults.map(\.count).saturatingSum(from: starved)
        return all == 0 ? 0 : Double(starved) / Double(all)
    }

    private var notes: [String] {
        let runs = GateResult.number(baseline.runs, "run")
        let least = Comparison.leastNewStalls(beforeNs: baseline.watchedNs, afterNs: current.watchedNs, rule)
        let proof =
            least.map { "a new fault is proven by \(GateResult.number($0, "stall"))" }
            ?? "no new fault can be proven by it"
        let starved = current.faults.map(\.starved).saturatingSum()
        return ["\(runs), \(Figure.length(baseline.watchedNs)) watched; \(proof)"]
            + (starved == 0
                ? []
                : [
                    "\(GateResult.number(starved, "stall")) waited for a processor, and \(starved == 1 ? "is" : "are") set apart"
                ])
    }

    private func finding(_ item: Comparison.Item, _ severity: Finding.Severity, isMachine: Bool = false) -> Finding {
        let name = VisibleText.of((functions[item.fault] ?? nil) ?? "unknown code", limit: 160)
        let chance =
            item.probability >= 1
            ? "too few to tell" : "p \(item.probability < 0.0001 ? "< 0.0001" : "= \(Figure.short(item.probability))")"
        let (before, after) = (item.before, item.after)
        let figures: String
        let kind: Finding.Rule
        switch item.change {
        case .newFault:
            kind = .newFault
            figures =
                "is new: \(GateResult.number(after.count, "stall")) in \(Figure.length(after.watchedNs)), none in the baseline's \(Figure.length(before.watchedNs))"
        case .worseRate:
            kind = .worseRate
            figures =
                "stalls \(Figure.short(item.ratio)) times as often: \(after.count) in \(Figure.length(after.watchedNs)), before \(before.count) in \(Figure.length(before.watchedNs))"
        case .longer:
            kind = .longerStalls
            figures =
                "stalls \(Figure.short(item.ratio)) times as long: \(Figure.length(Int64(saturating: after.median))) at the median of \(after.lengthsNs.count), before \(Figure.length(Int64(saturating: before.median))) of \(before.lengthsNs.count)"
        }
        let machine =
            isMachine || (isStarved && severity == .doubtful)
            ? "; the machine gave it no processor, which is not the code's fault: run it with less beside it" : ""
        return Finding(
            kind,
            severity,
            message: "\(name) \(figures) (\(chance), \(item.fault))\(machine)",
            faults: [item.fault]
        )
    }
}

extension Baseline {
    /// The ratchet: what has proven to be better is what is compared with from now on. Nil where nothing has.
    public func tightened(
        by overview: ReportReader.Overview,
        at moment: Timestamp,
        _ rule: Comparison.Rule = .init()
    ) -> Baseline? {
        guard let current = Baseline(overview, at: moment), current.environment == environment else { return nil }
        let places = Dictionary(
            current.faults.enumerated().flatMap { index, fault in
                ([fault.fingerprint] + fault.aliases).map { ($0, index) }
            }
        ) { first, _ in first }
        let before = merged(like: current).faults
        var tightened = self
        tightened.faults = before
        let now = before.map { fault in
            ([fault.fingerprint] + fault.aliases).lazy.compactMap { places[$0] }.first.map { current.faults[$0] }
                ?? Fault(
                    fingerprint: fault.fingerprint,
                    aliases: [],
                    count: 0,
                    starved: 0,
                    watchedNs: current.watchedNs,
                    lengthsNs: []
                )
        }
        // The other way round: what was worse before.
        let better = Comparison(
            zip(before, now).map {
                ($0.fingerprint, $1.figures(countingStarved: true), $0.figures(countingStarved: true))
            },
            by: rule
        ).proven
        guard !better.isEmpty else { return nil }
        let indices = Dictionary(zip(before.map(\.fingerprint), before.indices)) { first, _ in first }
        for item in better {
            guard let index = indices[item.fault] else { continue }
            if item.change == .longer {
                tightened.faults[index].lengthsNs = now[index].lengthsNs
            } else {
                (tightened.faults[index].count, tightened.faults[index].starved) = (
                    now[index].count, now[index].starved
                )
                tightened.faults[index].watchedNs = now[index].watchedNs
            }
        }
        tightened.faults.removeAll { $0.count == 0 && $0.starved == 0 }
        tightened.recordedAt = moment
        return tightened
    }
}

extension Baseline {
    /// With those faults added up that a later one shows to be the same: each by itself would seem to come more often now.
    func merged(like later: Baseline) -> Baseline {
        let names = later.faults.enumerated().flatMap { index, fault in
            ([fault.fingerprint] + fault.aliases).map { ($0, index) }
        }
        let groups = Dictionary(names) { first, _ in first }
        var merged = self
        merged.faults = []
        var places: [Int: Int] = [:]
        for fault in faults {
            let group = ([fault.fingerprint] + fault.aliases).lazy.compactMap { groups[$0] }.first
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
    /// Another that is the same. Counts of different times are brought to the shorter one: they prove no more than they did.
    fileprivate mutating func add(_ other: Self) {
        let least = min(watchedNs, other.watchedNs)
        count = scaled(count, to: least).addingSaturated(other.scaled(other.count, to: least))
        starved = scaled(starved, to: least).addingSaturated(other.scaled(other.starved, to: least))
        watchedNs = least
        lengthsNs = Array((lengthsNs + other.lengthsNs).prefix(Baseline.mostLengths))
        aliases = Set(aliases + [other.fingerprint] + other.aliases).subtracting([fingerprint])
            .sorted { $0.rawValue < $1.rawValue }
        function = function ?? other.function
    }

    private func scaled(_ number: Int, to timeNs: Int64) -> Int {
        timeNs < watchedNs ? Int(saturating: (Double(number) * Double(timeNs) / Double(watchedNs)).rounded()) : number
    }
}
