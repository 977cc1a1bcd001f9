import StallReports

/// A stall as `tail` tells it: one line for each change of its state, and the cause once.
enum StallLine {
    static func lines(_ report: StallReport, isFirst: Bool) -> [StyledText] {
        let moment = isFirst && report.state == .ongoing ? report.detectedAt : report.lastKnownMoment
        let line: StyledText = """
            \(moment.toMilliseconds, .dim)  \(report.styledState.padded(to: 10))  \
            \(StyledText(report.durationText).padded(to: 7))  \
            \(report.cause.verdict.styled.padded(to: 8))  \
            \(StyledText(report.watched.label, .bold, limit: 80))  \(report.culpritText)  \(ShortFingerprints.prefix(of: report.fingerprint), .dim)  \(report.id, .dim)
            """
        let details = [report.cause.summary, report.victimText ?? ""].filter { !$0.isEmpty }
        return isFirst ? [line] + details.map { "    \($0, .dim)" } : [line]
    }

    /// One that lasts, as it grows.
    static func growth(of report: StallReport) -> StyledText {
        """
        \(report.styledState) for \(DurationText(nanoseconds: report.durationNs).short, .bold)  \
        \(StyledText(report.watched.label, limit: 80))  \(report.culpritText)
        """
    }
}
