import StallReports

/// Stalls as a table, the newest last.
enum StallList {
    /// - Parameter repeats: stalls like it that were only counted, by the report.
    static func lines(
        _ reports: [StallReport],
        ids: ShortIDs,
        repeats: [ULID: StallReport.Repeats] = [:],
        width: Int?
    ) -> [StyledText] {
        var columns: [TextTable.Column] = [
            .init(title: "ID"), .init(title: "STARTED"), .init(title: "STATE"), .init(title: "DURATION"),
            .init(title: "KIND"), .init(title: "VERDICT", minimum: 8), .init(title: "CULPRIT", minimum: 12),
            .init(title: "LABEL", minimum: 4),
        ]
        let hasRepeats = reports.contains { repeats[$0.id] != nil }
        if hasRepeats { columns.append(.init(title: "REPEATS")) }
        var table = TextTable(columns)
        for report in reports {
            var row = [
                StyledText(ids.short(report.id)),
                StyledText(width == nil ? report.startedAt.toSeconds : report.startedAt.withoutYear),
                report.styledState,
                StyledText(report.durationText),
                StyledText(report.kind.rawValue, limit: 40),
                StyledText(report.cause.verdict.rawValue, limit: 40),
                StyledText(report.culpritText, limit: 120),
                StyledText(report.watched.label),
            ]
            let text = repeats[report.id].map { width == nil ? $0.dated : $0.short }
            if hasRepeats { row.append(StyledText(text ?? "")) }
            table.append(row)
        }
        return table.lines(width: width)
    }
}
