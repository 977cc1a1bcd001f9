import StallReports

extension GateResult {
    /// For a person: the verdict, then what it rests on, a line each. No colours.
    public var text: String {
        var lines = [headline]
        lines += doubts.map { "  cannot judge: \($0)" }
        if let text = tooManyText { lines.append("  over budget: \(text)") }
        lines += tooLong.map { "  over budget: \(Self.tooLongText($0, budget))" }
        if hasTooMany { lines += counted.filter { !tooLong.contains($0) }.map { "  stall: \(Self.line($0))" } }
        lines += allowed.map { "  allowed: \(Self.line($0))" }
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
        return "\(word): \(Self.number(stallCount, "stall")), \(allowed.count) allowed, "
            + "\(watched) watched in \(Self.number(runs.count, "run"))"
    }

    var tooManyText: String? {
        guard hasTooMany, let most = budget.maxStalls else { return nil }
        return "\(Self.number(stallCount, "stall")), \(most) permitted"
    }

    private static func number(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }

    static func tooLongText(_ report: StallReport, _ budget: Budget) -> String {
        let most = budget.maxDurationNs.map { ", \(DurationText(nanoseconds: $0)) permitted" } ?? ""
        return line(report) + most
    }

    /// One stall on one line, with its exact length: a budget may be missed by a microsecond.
    static func line(_ report: StallReport) -> String {
        let length = DurationText(nanoseconds: report.durationNs)
        let culprit = VisibleText.of(report.culprit?.function ?? report.culprit?.symbol ?? "unknown code", limit: 160)
        return "\(report.id) \(length) in \(culprit) on \(VisibleText.of(report.watched.label, limit: 80)) "
            + "(\(VisibleText.of(report.cause.verdict.rawValue, limit: 40)), \(report.fingerprint))"
    }
}
