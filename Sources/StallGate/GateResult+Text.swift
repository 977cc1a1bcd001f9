import StallReading
package import StallReports

extension GateResult {
    /// For display: the verdict, then its reasons, a line each; after many the verdict again. No colours. Times are UTC.
    public var text: String { text { "\($0)" } }

    /// The same text, with times as `time` writes them.
    ///
    /// - Parameter time: How a time is written.
    package func text(time: (Timestamp) -> String) -> String {
        var lines = [headline]
        lines += doubts.prefix(Self.mostDoubts).map { "  cannot judge: \($0.text(time: time))" }
        let moreDoubts = doubts.count - Self.mostDoubts
        if moreDoubts > 0 {
            lines.append("  cannot judge: … \(quantity(moreDoubts, "more reason")); --format json has all")
        }
        lines += cutShort.map { "  cut short: \(Self.cutShortLine($0))" }
        if repeats == 1 {
            if let text = tooMany?.message { lines.append("  over budget: \(text)") }
            lines += tooLongLines().map { "  over budget: \($0)" }
        }
        let culprits = culprits
        lines += ruleFindings.flatMap { [Self.line($0)] + Self.faultLines($0, culprits) }
        lines += inconclusive.map { "  inconclusive: \($0)" }
        lines += unlimited.map { ["  not judged: \($0.message)"] + Self.faultLines($0.faults, culprits) } ?? []
        lines += notes.map { "  baseline: \($0)" }
        lines += tooManyLines().map { "  \($0)" }
        let allowedLines =
            self.lines(allowed, most: Self.mostAllowed)
            + allowedCountedOnly.prefix(Self.mostAllowed).map { line($0) }
            + Self.rest(allowedCountedOnly.count - Self.mostAllowed)
        lines += allowedLines.map { "  allowed: \($0)" }
        lines += unusedAllowances.map { "  unused: \(source(of: $0)) \($0): no stall has this fingerprint" }
        // The end is what a terminal and a job's log show.
        if lines.count > Self.screen { lines.append(headline) }
        return lines.joined(separator: "\n") + "\n"
    }

    /// The number of lines above which the verdict is also the last one.
    private static let screen = 20

    /// The largest number of lines about faults: nobody reads a million lines.
    static let mostLines = 10_000
    /// Of reasons why it cannot judge: each of a million files may be unreadable.
    private static let mostDoubts = 20
    /// Of allowed faults, which nobody has to mend, and of a finding's.
    private static let (mostAllowed, mostFaults) = (10, 3)

    var headline: String {
        let word =
            switch verdict {
            case .within: "within budget"
            case .over: isOverBudget ? "over budget" : "worse than the baseline"
            case .cannotJudge: "cannot judge"
            case .inconclusive: "inconclusive"
            }
        let watched = DurationText(nanoseconds: watchedNs).short
        // Left out if it is zero: beside 'within budget: 8 stalls' it would be read as the limit.
        let exempt = allowedCount == 0 ? "" : " and \(allowedCount) allowed"
        return "\(word): \(quantity(stallCount, "stall"))\(exempt), "
            + "\(watched) watched in \(quantity(runs.count, "run"))\(stillRunning)"
    }

    private var isOverBudget: Bool { findings.contains { $0.severity == .error && !$0.rule.isOfBaseline } }

    /// The judged data may not be complete yet.
    private var stillRunning: String {
        let count = runs.count { $0.state == .running }
        return count == 0 ? "" : count == runs.count ? ", still running" : ", \(count) of them still running"
    }

    /// The findings that the lines about the total number and durations do not contain.
    var ruleFindings: [Finding] {
        findings.filter { repeats > 1 || $0.budget != nil || ![.stallCount, .stallLength].contains($0.rule) }
    }

    static func line(_ finding: Finding) -> String {
        let word =
            switch finding.severity {
            case .error: finding.rule.isOfBaseline ? "worse" : "over budget"
            case .warning: "warning"
            case .doubtful: "inconclusive"
            }
        return "  \(word): \(finding.text)"
    }

    private func source(of allowance: FingerprintPrefix) -> String {
        budget.allowances.contains { $0.fault == allowance } ? "allowance of" : "--allow"
    }

    /// The stalls that lasted too long, a line for each fault.
    ///
    /// - Parameter most: Of those that have reports, and of those that were only counted.
    func tooLongLines(most: Int = mostLines) -> [String] {
        let limit = budget.maxDurationNs.map { ", \(DurationText(nanoseconds: $0)) permitted" } ?? ""
        let counted = tooLongCountedOnly
        return lines(tooLong, most: most, limitNs: budget.maxDurationNs, ending: limit)
            + counted.prefix(most).map { line($0, limitNs: budget.maxDurationNs) + limit }
            + Self.rest(counted.count - most)
    }

    /// If there are too many stalls, those that are not among the ones that lasted too long, a line for each fault.
    ///
    /// - Parameter most: As for ``tooLongLines(most:)``.
    func tooManyLines(most: Int = mostLines) -> [String] {
        guard hasTooMany else { return [] }
        // Computed once: there may be a hundred thousand of them.
        let shown = Set(tooLong.map(\.id))
        let shownFaults = Set(tooLongCountedOnly)
        let others = counted.lazy.filter { !shown.contains($0.id) }
        let silent = countedOnly.filter { !shownFaults.contains($0) }
        let silentLines = silent.prefix(most).map { line($0) } + Self.rest(silent.count - most)
        return lines(others, most: most).map { "stall: \($0)" } + silentLines.map { "stalls: \($0)" }
    }

    /// A line for each fault of the stalls, the longest first, and one that says how many are left out.
    func lines(
        _ stalls: some Sequence<StallOutline>,
        most: Int = mostLines,
        limitNs: Int64? = nil,
        ending: String = ""
    ) -> [String] {
        var (faults, known): ([Fingerprint: FaultSum], [Fingerprint: Fingerprint]) = ([:], [:])
        for stall in stalls {
            let name = known[stall.fingerprint] ?? names.first(of: stall.fingerprint)
            known[stall.fingerprint] = name
            faults[name, default: FaultSum(stall)].add(stall)
        }
        let sorted = faults.values.sorted { ($1.longestNs, $0.longest.id) < ($0.longestNs, $1.longest.id) }
        return sorted.prefix(most).map { $0.line(limitNs: limitNs) + ending } + Self.rest(sorted.count - most)
    }

    private static func rest(_ left: Int) -> [String] {
        left > 0 ? ["… \(quantity(left, "more fault")); 'stall-monitor faults' shows all"] : []
    }

    /// Stalls whose functions are told, if a finding says so of something. There may be a million stalls.
    private var culprits: FaultTable<StallOutline> {
        let isNamed = ruleFindings.contains { !$0.faults.isEmpty && !$0.rule.isOfBaseline }
        guard isNamed || unlimited != nil else { return FaultTable([], names) }
        let known = counted.oncePerTraits + examples.values
        return FaultTable(known.map { ($0.fingerprint, $0) }, names) { $0.culpritName == nil ? $1 : $0 }
    }

    /// The function that stalled, or why there is no stack, in the words of lists.
    ///
    /// - Parameter stall: A report of the fault. Nil: only counts of it are left.
    static func culprit(_ stall: StallOutline?) -> String {
        stall.map { VisibleText.of($0.culpritText, limit: 160) } ?? "code that no report here names"
    }

    /// Where the stalls of a finding are, the worst first. The message of a comparison names its function itself.
    private static func faultLines(_ finding: Finding, _ culprits: FaultTable<StallOutline>) -> [String] {
        finding.rule.isOfBaseline ? [] : faultLines(finding.faults, culprits)
    }

    private static func faultLines(_ faults: [Fingerprint], _ culprits: FaultTable<StallOutline>) -> [String] {
        let lines = faults.prefix(mostFaults).map { fault in "in \(culprit(culprits[fault])) (\(fault))" }
        return (lines + rest(faults.count - mostFaults)).map { "      \($0)" }
    }

    /// One stall on one line.
    static func line(_ stall: StallOutline) -> String {
        var sum = FaultSum(stall)
        sum.add(stall)
        return sum.line()
    }

    /// A run that its process did not close, and how the process ended.
    static func cutShortLine(_ run: RunRecord) -> String {
        let end = run.processEnd.map { VisibleText.of($0.summary, limit: 200) } ?? "how it ended is not known"
        return "run \(run.id) of process \(run.process.pid) was not closed, and is judged by what it left: \(end)"
    }

    /// The stalls of a fault that were only counted.
    func line(_ fault: RunRecord.Repeated, limitNs: Int64? = nil) -> String {
        let report = fault.repeats.report.map { ", like \($0)" } ?? ""
        let loop = fault.label.map { " on \(VisibleText.of($0, limit: 80))" } ?? ""
        let counted = FaultSum.counted(fault.repeats.count, fault.repeats.longestNs, limitNs)
        let culprit = examples[fault.fingerprint].map { " in \(Self.culprit($0))" } ?? ""
        return "\(counted)\(culprit)\(loop) (\(fault.fingerprint))\(report)"
    }
}

/// Stalls of one fault, for one line.
struct FaultSum {
    private(set) var longest: StallOutline
    private var stalls = 0
    private var countedOnly = 0
    private var longestCountedNs: Int64 = 0

    /// - Parameter first: One of its stalls, which is not added by this.
    init(_ first: StallOutline) { longest = first }

    mutating func add(_ stall: StallOutline) {
        stalls += 1
        if stall.durationNs > longest.durationNs { longest = stall }
        guard let repeats = stall.repeats else { return }
        countedOnly = countedOnly.addingSaturated(max(0, repeats.count))
        longestCountedNs = max(longestCountedNs, repeats.longestNs)
    }

    /// That of the longest stall, which may only have been counted.
    var longestNs: Int64 { max(longest.durationNs, longestCountedNs) }

    /// The longest of the stalls, and how many there are. A plus if its end was not seen.
    func line(limitNs: Int64? = nil) -> String {
        let length = Figure.length(longest.durationNs, beside: limitNs) + (longest.state == .recovered ? "" : "+")
        let counted = Self.counted(countedOnly, longestCountedNs, limitNs)
        return
            "\(longest.id) \(length) in \(GateResult.culprit(longest)) on \(VisibleText.of(longest.label, limit: 80)) "
            + "(\(VisibleText.of(longest.verdict.canonical.rawValue, limit: 40)), \(longest.fingerprint))"
            + (stalls > 1 ? ", the longest of \(stalls)" : "")
            + (countedOnly > 0 ? ", \(stalls > 1 ? "besides" : "before it") \(counted)" : "")
    }

    static func counted(_ count: Int, _ longestNs: Int64, _ limitNs: Int64?) -> String {
        "\(count) only counted, the longest \(Figure.length(longestNs, beside: limitNs))"
    }
}
