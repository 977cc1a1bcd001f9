import StallReports

extension GateResult {
    /// For a person: the verdict, then what it rests on, a line each. No colours.
    public var text: String {
        var lines = [headline]
        lines += doubts.map { "  cannot judge: \($0)" }
        if let text = tooManyText { lines.append("  over budget: \(text)") }
        lines += tooLongLines.map { "  over budget: \($0)" }
        if hasTooMany {
            lines += counted.filter { !tooLong.contains($0) }.map { "  stall: \(Self.line($0))" }
            lines += countedOnly.filter { !tooLongCountedOnly.contains($0) }.map { "  stalls: \(Self.line($0))" }
        }
        lines += allowed.map { "  exempt: \(Self.line($0))" }
        lines += unusedAllowances.map { "  unused: --allow \($0): no stall has this fingerprint" }
        return lines.joined(separator: "\n") + "\n"
    }

    private var headline: String {
        let word =
            switch verdict {
            case .within: "within budget"
            case .over: "over budget"
            case .cannotJudge: "cannot judge"
            }
        let watched = DurationText(nanoseconds: watchedNs).short
        return "\(word): \(Self.number(stallCount, "stall")), \(allowed.count) exempt, "
            + "\(watched) watched in \(Self.number(runs.count, "run"))\(stillRunning)"
    }

    /// What is judged may not be all yet.
    private var stillRunning: String {
        let count = runs.count { $0.state == .running }
        return count == 0 ? "" : count == runs.count ? ", still running" : ", \(count) of them still running"
    }

    var tooManyText: String? {
        guard hasTooMany, let most = budget.maxStalls else { return nil }
        return "\(Self.number(stallCount, "stall")), \(most) permitted"
    }

    private static func number(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }

    /// What lasted too long, a line each.
    var tooLongLines: [String] {
        let most = budget.maxDurationNs.map { ", \(DurationText(nanoseconds: $0)) permitted" } ?? ""
        return (tooLong.map(Self.line) + tooLongCountedOnly.map(Self.line)).map { $0 + most }
    }

    /// One stall on one line, with its exact length: a budget may be missed by a microsecond. A plus where nobody saw its end.
    static func line(_ report: StallReport) -> String {
        let seenToEnd = report.state == .recovered
        let length = "\(DurationText(nanoseconds: report.durationNs))\(seenToEnd ? "" : "+")"
        let culprit = VisibleText.of(report.culpritName ?? "unknown code", limit: 160)
        return "\(report.id) \(length) in \(culprit) on \(VisibleText.of(report.watched.label, limit: 80)) "
            + "(\(VisibleText.of(report.cause.verdict.rawValue, limit: 40)), \(report.fingerprint))"
            + (report.repeats.map { ", before it \(counted($0))" } ?? "")
    }

    /// The stalls of a fault that were only counted.
    static func line(_ fault: RunRecord.Repeated) -> String {
        let report = fault.repeats.report.map { ", like \($0)" } ?? ""
        return "\(counted(fault.repeats)) (\(fault.fingerprint))\(report)"
    }

    private static func counted(_ repeats: StallReport.Repeats) -> String {
        "\(repeats.count) only counted, the longest \(DurationText(nanoseconds: repeats.longestNs))"
    }
}
