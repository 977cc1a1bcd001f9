public import StallReading
public import StallReports

/// Judges the contents of a report directory by a budget. A pure function.
public enum Gate {
    /// Judges full reports. The verdict is "within budget" only if all necessary data exists: every report is readable, none is
    /// missing, and a monitor watched.
    public static func judge(
        _ contents: Result<ReportReader.Contents, ReportError>,
        by budget: Budget
    ) -> GateResult {
        judge(contents.map { ReportReader.Overview($0) }, by: budget)
    }

    /// The same for outlines, which are sufficient: a directory may contain more full reports than fit into memory.
    public static func judge(
        _ overview: Result<ReportReader.Overview, ReportError>,
        by budget: Budget,
        against baseline: Baseline? = nil
    ) -> GateResult {
        judge(overview, by: budget, against: baseline, outOf: nil)
    }

    /// - Parameters:
    ///   - whole: The overview from which `overview` was selected, if it is a selection. Only this shows whether a run is
    ///     complete.
    ///   - choosing: Doubts about the selection itself.
    ///   - repeats: The runs that `overview` is the sum of, if they are runs of one command.
    package static func judge(
        _ overview: Result<ReportReader.Overview, ReportError>,
        by budget: Budget,
        against baseline: Baseline?,
        outOf whole: ReportReader.Overview?,
        choosing: [Doubt] = [],
        repeats: [ReportReader.Overview] = []
    ) -> GateResult {
        switch overview {
        case .failure(let error): unread(error, budget)
        case .success(let overview):
            judge(overview, by: budget, against: baseline, outOf: whole, choosing, repeats)
        }
    }

    private static func judge(
        _ overview: ReportReader.Overview,
        by budget: Budget,
        against baseline: Baseline?,
        outOf whole: ReportReader.Overview?,
        _ choosing: [Doubt],
        _ repeats: [ReportReader.Overview]
    ) -> GateResult {
        let names = FaultNames((whole ?? overview).stalls)
        let exemptions = Exemptions(budget, names)
        let all = Occurrence.All(in: overview, outOf: whole)
        let exempt = exemptions.areNone ? [] : all.filter { exemptions.cover($0) }
        let counted = exempt.isEmpty ? all : all.without { exemptions.cover($0) }
        // Those without a report.
        let (silent, silentlyExempt) = (counted.filter { $0.stall == nil }, exempt.filter { $0.stall == nil })
        let judged = BudgetJudge(budget, counted, overview.runs, names)
        var result = GateResult(
            budget: budget,
            doubts: (doubts(about: overview, budget, names, outOf: whole) + choosing + judged.doubts).once,
            // There may be a million stalls, so they are not copied.
            counted: exempt.isEmpty ? overview.stalls : counted.compactMap(\.stall),
            allowed: exempt.compactMap(\.stall),
            countedOnly: silent.compactMap(\.countedOnly),
            runs: overview.runs,
            names: names,
            findings: judged.findings
        )
        result.allowedCountedOnly = silentlyExempt.compactMap(\.countedOnly)
        result.examples = examples(of: silent + silentlyExempt)
        if let baseline {
            let runs = runs(of: overview, outOf: whole, comparedWith: baseline)
            BaselineJudge(baseline, overview, counted, names, repeats: repeats, whole: runs)?.add(to: &result)
        } else {
            result.unlimited = GateResult.Unlimited(judged.unlimited, names)
        }
        return result
    }

    /// For faults without a report of their own: a report of the same fault, as far as there is one.
    private static func examples(of silent: [Occurrence]) -> [Fingerprint: StallOutline] {
        let examples = silent.compactMap { fault in fault.example.map { (fault.fingerprint, $0) } }
        return Dictionary(examples) { first, _ in first }
    }

    /// The runs with all their loops. Other runs of `whole` than the chosen ones may be those that the chosen ones are compared with.
    private static func runs(
        of overview: ReportReader.Overview,
        outOf whole: ReportReader.Overview?,
        comparedWith baseline: Baseline
    ) -> [RunRecord] {
        guard let whole else { return overview.runs }
        let chosen = Set(overview.runs.map(\.id))
        return baseline.isOfAnyEnvironment ? whole.runs.filter { chosen.contains($0.id) } : whole.runs
    }

    /// The result of a directory that cannot be read.
    private static func unread(_ error: ReportError, _ budget: Budget) -> GateResult {
        GateResult(
            budget: budget,
            doubts: [.directory(error)],
            counted: [],
            allowed: [],
            countedOnly: [],
            runs: [],
            names: .init([StallOutline]())
        )
    }

    private static func doubts(
        about overview: ReportReader.Overview,
        _ budget: Budget,
        _ names: FaultNames,
        outOf whole: ReportReader.Overview?
    ) -> [Doubt] {
        let chosen = Set(overview.runs.map(\.id))
        let allowed = budget.allAllowed
        let faults = allowed.isEmpty ? [] : faults(of: overview, names)
        let ambiguous = allowed.filter { prefix in faults.count { names.hasName($0, like: prefix) } > 1 }
        var reported: [ULID: Reported] = [:]
        for stall in (whole ?? overview).stalls { stall.run.map { reported[$0, default: Reported()].add(stall) } }
        return overview.failures.map { .file($0) }
            + (overview.runs.isEmpty ? [.noRun] : [])
            + (whole ?? overview).runs.filter { chosen.contains($0.id) }.flatMap {
                doubts(about: $0, reported[$0.id] ?? Reported())
            }
            + ambiguous.map { .ambiguous($0) }
    }

    /// Those of reports, and those that were only counted, each by its first fingerprint: an allowance covers it by any of them.
    private static func faults(of overview: ReportReader.Overview, _ names: FaultNames) -> Set<Fingerprint> {
        let reported = Set(overview.stalls.lazy.map(\.fingerprint))
        let counted = overview.runs.flatMap { $0.repeated ?? [] }.map(\.fingerprint)
        return Set(reported.union(counted).map(names.first))
    }

    /// Less than a second (in nanoseconds) counts as not watched: a monitor that started and could then write nothing more
    /// leaves such a record.
    private static let leastWatched: Int64 = 1_000_000_000

    /// The counts from the reports of one run.
    private struct Reported {
        var count: Int64 = 0
        var suppressed: Int64 = 0

        mutating func add(_ stall: StallOutline) {
            count += 1
            suppressed = suppressed.addingSaturated(Int64(clamping: max(0, stall.suppressed)))
        }
    }

    private static func doubts(about run: RunRecord, _ reported: Reported) -> [Doubt] {
        var doubts: [Doubt] = []
        if run.watchedTotalNs < leastWatched {
            doubts.append(run.state == .running ? .justStarted(run: run.id) : .watchedNothing(run: run.id))
        }
        // Otherwise its live record shows what happened up to its last moment.
        if run.state == .terminated, run.processEnd == nil {
            doubts.append(.endUnknown(run: run.id, since: run.updatedAt))
        }
        if run.disarmed != nil { doubts.append(.disarmed(run: run.id)) }
        let missing = missingReports(of: run, reported)
        if missing > 0 { doubts.append(.missingReports(run: run.id, count: missing)) }
        let unaccounted = unaccountedStalls(of: run, reported)
        if unaccounted > 0 { doubts.append(.unaccounted(run: run.id, count: unaccounted)) }
        return doubts
    }

    /// Stalls that the run counted, minus the suppressed ones and those whose report exists. While it runs, counts and files
    /// may be from different moments, and only writes known to be lost, or refused so far, are missing.
    private static func missingReports(of run: RunRecord, _ found: Reported) -> Int64 {
        let waiting = max(0, run.writing?.waiting ?? 0)
        guard run.state != .running else { return [max(0, run.lostWrites), waiting].saturatingSum() }
        // Those that were dropped before they could be counted by kind.
        let dropped = max(0, run.writing?.dropped["stalls"] ?? 0)
        let stalls = run.stalls.values.map { max(0, $0) }.saturatingSum()
        let reported = max(0, stalls - max(0, run.suppressed))
        let missing = max(waiting, reported - found.count)
        return [max(0, missing), dropped].saturatingSum()
    }

    /// Stalls that were only counted, minus those that a report or the run record attributes to a fault. Of the others, neither
    /// the durations are known nor whether they are allowed. A run keeps the counts of a limited number of faults.
    private static func unaccountedStalls(of run: RunRecord, _ reported: Reported) -> Int64 {
        guard run.suppressed > 0 else { return 0 }
        let recorded = (run.repeated ?? []).map { Int64(clamping: max(0, $0.repeats.count)) }
        return max(0, run.suppressed - recorded.saturatingSum(from: reported.suppressed))
    }
}

/// The stalls that a budget does not count: allowed faults, and stalls of rules that are switched off.
private struct Exemptions {
    private let allowed: [FingerprintPrefix]
    private let rules: [BudgetRule]
    private let names: FaultNames

    init(_ budget: Budget, _ names: FaultNames) {
        allowed = budget.allAllowed
        rules = budget.rules.contains { $0.severity == .off } ? budget.rules : []
        self.names = names
    }

    /// Whether everything counts.
    var areNone: Bool { allowed.isEmpty && rules.isEmpty }

    /// A fault is allowed by any of its fingerprints.
    func cover(_ occurrence: Occurrence) -> Bool {
        if allowed.contains(where: { names.hasName(occurrence.fingerprint, like: $0) }) { return true }
        return rules.first { $0.scope.fits(occurrence, names) }?.severity == .off
    }
}

extension Array where Element: Hashable {
    /// Each element once, in order of first occurrence.
    var once: [Element] {
        var seen: Set<Element> = []
        return filter { seen.insert($0).inserted }
    }
}

extension Gate {
    /// Judges several runs of one command: each by the budget, all together against the baseline.
    ///
    /// A limit exceeded in more than half of the runs is over budget; if in fewer, it is intermittent, and the gate is
    /// inconclusive.
    public static func judge(
        repeats: [ReportReader.Overview],
        by budget: Budget,
        against baseline: Baseline? = nil
    ) -> GateResult {
        var all = ReportReader.Overview()
        for overview in repeats { all.add(overview) }
        let together = judge(.success(all), by: budget, against: baseline, outOf: nil, repeats: repeats)
        guard repeats.count > 1 else { return together }
        let each = repeats.map { judge(.success($0), by: budget) }
        var result = together
        result.repeats = repeats.count
        // A run without a record would not show in the sum of all, and faults of several runs that an allowance fits not in each.
        result.doubts = (each.flatMap(\.doubts) + together.doubts).once
        result.findings = often(each.map(\.findings), together.names) + together.findings.filter(\.rule.isOfBaseline)
        return result
    }

    /// Merges equal findings of several runs into one that says how often it occurred.
    private static func often(_ runs: [[Finding]], _ names: FaultNames) -> [Finding] {
        struct Key: Hashable {
            let rule: Finding.Rule
            let budget: String?
        }
        var (order, found): ([Key], [Key: [Finding]]) = ([], [:])
        for finding in runs.joined() {
            // An expired allowance does not depend on runs, and each is a separate finding.
            let key = Key(
                rule: finding.rule,
                budget: finding.rule == .expiredAllowance ? finding.message : finding.budget
            )
            if found[key] == nil { order.append(key) }
            found[key, default: []].append(finding)
        }
        return order.compactMap { key in
            guard let all = found[key], var finding = all.first else { return nil }
            let isReal = all.count * 2 > runs.count
            if finding.severity == .error, !isReal { finding.severity = .doubtful }
            var seen: Set<Fingerprint> = []
            finding.faults = all.flatMap(\.faults).filter { seen.insert(names.first(of: $0)).inserted }
            if finding.rule != .expiredAllowance {
                // The message has one run's figures. Unless it says so, they seem to be those of all runs.
                let differ = all.contains { $0.message != finding.message }
                let source = differ ? "; the figures are of the first of them" : ""
                let often = isReal ? "" : ": it comes and goes"
                finding.message += " (in \(all.count) of \(runs.count) runs\(often)\(source))"
            }
            return finding
        }
    }
}
