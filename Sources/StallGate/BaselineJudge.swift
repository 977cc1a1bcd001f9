import Glibc
import StallReading
import StallReports

/// Judges a run against a baseline. A change that appears only if stalls that waited for a processor are counted is not
/// attributed to the code.
struct BaselineJudge {
    private let baseline: Baseline
    private let current: Baseline
    private let rule = Comparison.Rule()
    private let faults: [FaultPair]
    private let functions: [Fingerprint: String]
    private let watched: Set<WatchedPlace>

    /// Nil without a run record: that is already a doubt.
    ///
    /// - Parameters:
    ///   - occurrences: Those that count.
    ///   - repeats: The runs that the overview is the sum of.
    ///   - whole: The runs with all their loops, chosen or not.
    init?(
        _ baseline: Baseline,
        _ overview: ReportReader.Overview,
        _ occurrences: some Sequence<Occurrence>,
        _ names: FaultNames,
        repeats: [ReportReader.Overview],
        whole: [RunRecord]
    ) {
        guard var current = Baseline(overview, at: baseline.recordedAt, occurrences, names) else { return nil }
        current.noteDispersion(of: repeats)
        let baseline = baseline.part(ofLoops: WatchedPlace.watched(in: overview.runs))
        (self.baseline, self.current) = (baseline, current)
        watched = WatchedPlace.watched(in: whole)
        faults = baseline.pairs(with: current)
        let named = faults.compactMap { pair in
            (pair.now?.function ?? pair.before?.function).map { (pair.fingerprint, $0) }
        }
        functions = Dictionary(named) { first, _ in first }
    }

    private func compared(countingStarved: Bool) -> Comparison {
        Comparison(faults.figures(baseline, current, countingStarved: countingStarved), by: rule)
    }

    func add(to result: inout GateResult) {
        if let reason = incomparable(result.runs) { return result.inconclusive.append(reason) }
        if let reason = tooShort { result.inconclusive.append(reason) }
        result.inconclusive += unwatched
        let (code, all) = (compared(countingStarved: false), compared(countingStarved: true))
        result.findings += code.proven.map { finding($0, isStarved && $0.change != .newFault ? .doubtful : .error) }
        let rare = RareFaults(
            code.doubtful.filter { $0.change == .newFault && $0.probability > rule.doubt },
            faults,
            rule
        )
        result.findings += code.doubtful.map { item in
            rare.areExpected && rare.items.contains(item)
                ? finding(item, .warning, expected: rare.reason) : finding(item, .doubtful)
        }
        let shown = Set((code.proven + code.doubtful).map(\.fault))
        result.findings += all.proven.filter { !shown.contains($0.fault) }.map {
            finding($0, .doubtful, isMachine: true)
        }
        result.notes += notes
    }

    /// Why these runs cannot be compared with the baseline: only runs of the same environment can. Nil if they can.
    private func incomparable(_ runs: [RunRecord]) -> String? {
        if baseline.isOfAnyEnvironment { return nil }
        let different = Baseline.Environment.different(in: runs)
        if !different.isEmpty {
            let list = different.map(\.description).joined(separator: "; ")
            return "the runs are of several environments (\(list)): only like is compared; judge each on its own"
        }
        guard current.environment == baseline.environment else {
            return
                "the baseline is of \(baseline.environment), and this run of \(current.environment): only like is compared; record one here"
        }
        return nil
    }

    /// A fault that occurred once in a baseline run would be missed as often as seen.
    private var tooShort: String? {
        let one = baseline.watchedNs / Int64(max(1, baseline.runs))
        guard current.watchedNs < one / 2 else { return nil }
        return
            "it watched for \(Figure.length(current.watchedNs)), and a run of the baseline for \(Figure.length(one)): "
            + "what comes once in a run would be missed; let it run as long, or repeat it"
    }

    /// Where nobody watched, although faults that should have occurred there did not: nothing shows that they are gone.
    private var unwatched: [String] {
        let gone = faults.filter { pair in
            let places = pair.before?.loops ?? []
            return (pair.now?.count ?? 0) == 0 && !places.isEmpty
                && !places.contains { place in watched.contains { place.fits($0) } }
        }
        // By the same statistics: a fault that came once in a long baseline need not come.
        let reversed = gone.figures(baseline, current).map { ($0.fault, before: $0.after, after: $0.before) }
        let missed = Dictionary(Comparison(reversed, by: rule).proven.map { ($0.fault, $0) }) { first, _ in first }
        var stalls: [WatchedPlace: Int] = [:]
        for pair in gone {
            guard let place = pair.before?.loops?.first, let item = missed[pair.fingerprint] else { continue }
            stalls[place] = (stalls[place] ?? 0).addingSaturated(item.after.count)
        }
        return stalls.sorted { ($1.value, $0.key.text) < ($0.value, $1.key.text) }.prefix(Self.mostPlaces).map {
            place,
            count in
            "\(place.text) was not watched, where the baseline has \(quantity(count, "stall")): "
                + "watch it as when the baseline was recorded, or record another one"
        }
    }

    /// Nobody reads a hundred lines.
    private static let mostPlaces = 10

    /// Whether the machine caused so many more stalls than in the baseline that the figures of this run say nothing about the
    /// code.
    private var isStarved: Bool {
        starvedShare(current) >= 0.25 && starvedShare(current) >= 2 * starvedShare(baseline)
    }

    private func starvedShare(_ baseline: Baseline) -> Double {
        let all = baseline.faults.map(\.count).saturatingSum(from: baseline.starved)
        return all == 0 ? 0 : Double(baseline.starved) / Double(all)
    }

    private var notes: [String] {
        let runs = quantity(baseline.runs, "run")
        let least = Comparison.leastNewStalls(beforeNs: baseline.watchedNs, afterNs: current.watchedNs, rule)
        let proof =
            least.map { "a new fault is proven by \(quantity($0, "stall"))" }
            ?? "no new fault can be proven by it"
        var notes = ["\(runs), \(Figure.length(baseline.watchedNs)) watched; \(proof)"]
        if current.starved > 0 {
            let stalls = quantity(current.starved, "stall")
            notes.append("\(stalls) starved of CPU: caused by the machine, and judged separately")
        }
        return notes
    }

    private func finding(
        _ item: Comparison.Item,
        _ severity: Finding.Severity,
        isMachine: Bool = false,
        expected: String = ""
    ) -> Finding {
        let name = VisibleText.of(functions[item.fault] ?? "unknown code", limit: 160)
        let kind: Finding.Rule =
            switch item.change {
            case .newFault: .newFault
            case .worseRate: .worseRate
            case .longer: .longerStalls
            }
        var machine = ""
        if isMachine {
            machine = "; the machine gave it no processor, which is not the code's fault: run it with less beside it"
        } else if isStarved, severity == .doubtful, item.change != .newFault {
            machine = "; the machine gave this run too little CPU to compare it: run it with less beside it"
        }
        let bursts =
            item.stallsPerBurst > 1
            ? "; its stalls come in bursts, so \(Figure.short(item.stallsPerBurst)) of them count as one" : ""
        return Finding(
            kind,
            severity,
            message:
                "\(name) \(figures(of: item)) (\(Figure.chance(item.probability)), \(item.fault))\(bursts)\(machine)\(expected)",
            faults: [item.fault]
        )
    }

    private func figures(of item: Comparison.Item) -> String {
        let (before, after, ratio) = (item.before, item.after, Figure.short(item.ratio))
        let (watchedBefore, watched) = (Figure.length(before.watchedNs), Figure.length(after.watchedNs))
        switch item.change {
        case .newFault:
            let stalls = "\(quantity(after.count, "stall")) in \(watched)"
            // A fault that was gone when the baseline was tightened has the watched time of that run.
            return before.watchedNs == baseline.watchedNs
                ? "is new: \(stalls), none in the baseline's \(watchedBefore)"
                : "occurs again: \(stalls), none in the \(watchedBefore) by which the baseline was tightened"
        case .worseRate:
            return
                "stalls \(ratio) times as often: \(after.count) in \(watched), before \(before.count) in \(watchedBefore)"
        case .longer:
            return "stalls \(ratio) times as long: \(Figure.length(after.medianNs)) at the median of "
                + "\(after.lengthsNs.count), before \(Figure.length(before.medianNs)) of \(before.lengthsNs.count)"
        }
    }
}

/// New faults of so few stalls that nothing is proven. A service has faults that come once in a while, and each set of runs has some
/// that the other has not: the more of them, the longer it is and the more hosts it is of.
private struct RareFaults {
    let items: Set<Comparison.Item>
    /// Whether no more of them are new than the baseline lets expect.
    let areExpected: Bool
    /// For a finding's message, if they are expected.
    let reason: String

    /// - Parameters:
    ///   - items: The rare ones.
    ///   - faults: All faults.
    init(_ items: [Comparison.Item], _ faults: [FaultPair], _ rule: Comparison.Rule) {
        self.items = Set(items)
        let known = faults.count { (1..<10).contains($0.before?.count ?? 0) }
        guard let item = items.first else {
            (areExpected, reason) = (false, "")
            return
        }
        let (expected, variance) = Self.expected(
            faults.compactMap { $0.before?.count },
            item.before.watchedNs,
            item.after.watchedNs
        )
        let more = (Double(items.count) - expected) / max(1, expected + variance).squareRoot()
        reason =
            "; only a warning, though it may be a regression: \(items.count) such \(items.count == 1 ? "fault is" : "faults are") new, "
            + "about \(Int(saturating: expected.rounded())) expected (\(known) of the baseline's came fewer than ten times)"
        areExpected = expected >= Self.leastExpected && Statistics.upperNormal(more) > rule.doubt
    }

    /// From fewer nothing is concluded: one fault that came once would excuse another one.
    private static let leastExpected = 5.0

    /// How many new faults are expected, and how uncertain that is, by how often those of the baseline occurred (Good and Toulmin, 1956).
    /// Smoothed (Efron and Thisted, 1976): otherwise whether the counts of frequent faults are odd or even would decide. For a run longer than
    /// the baseline: in a part of it that is as long.
    private static func expected(_ counts: [Int], _ beforeNs: Int64, _ afterNs: Int64) -> (Double, variance: Double) {
        guard beforeNs > 0, afterNs > 0 else { return (0, 0) }
        let length = min(1, Double(afterNs) / Double(beforeNs))
        var (expected, variance) = (0.0, 0.0)
        for count in counts where count > 0 {
            let part = pow(length, Double(count)) * Statistics.binomialTail(9, atLeast: count, 0.5)
            expected += count.isMultiple(of: 2) ? -part : part
            variance += part * part
        }
        return (expected, variance)
    }
}
