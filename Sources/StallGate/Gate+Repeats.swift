public import StallReports

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
        for overview in repeats {
            all.stalls += overview.stalls
            all.runs += overview.runs
            all.failures += overview.failures
        }
        let together = judge(.success(all), by: budget, against: baseline)
        guard repeats.count > 1 else { return together }
        let each = repeats.map { judge(.success($0), by: budget) }
        var result = together
        result.repeats = repeats.count
        // A run without a record would not show in the sum of all.
        result.doubts = each.flatMap(\.doubts).once
        result.findings = often(each.map(\.findings)) + together.findings.filter(\.rule.isOfBaseline)
        return result
    }

    /// Merges the same finding of several runs into one, with how often it occurred.
    private static func often(_ runs: [[Finding]]) -> [Finding] {
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
            finding.faults = all.flatMap(\.faults).filter { seen.insert($0).inserted }
            if finding.rule != .expiredAllowance {
                finding.message += " (in \(all.count) of \(runs.count) runs\(isReal ? "" : ": it comes and goes"))"
            }
            return finding
        }
    }
}
