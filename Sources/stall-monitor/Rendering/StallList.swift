import StallReports

/// Stalls as a table, the newest last.
struct StallList {
    let stalls: [StallOutline]
    let ids: ShortIDs
    /// Stalls like it that were only counted, by the report.
    var repeats: [ULID: StallReport.Repeats] = [:]
    var width: Int?

    /// One after the other: there may be a hundred thousand.
    var lines: some Sequence<StyledText> {
        let hasRepeats = stalls.contains { repeats[$0.id] != nil }
        let layout = TableLayout(columns(hasRepeats), fitting: stalls.lazy.map { cells($0, hasRepeats) }, width: width)
        return (-1..<stalls.count).lazy.map {
            $0 < 0 ? layout.header : layout.line(cells(stalls[$0], hasRepeats))
        }
    }

    private func columns(_ hasRepeats: Bool) -> [TextTable.Column] {
        let columns: [TextTable.Column] = [
            .init(title: "ID"), .init(title: "STARTED"), .init(title: "STATE"), .init(title: "DURATION"),
            .init(title: "KIND"), .init(title: "VERDICT", minimum: 8), .init(title: "CULPRIT", minimum: 12),
            .init(title: "LABEL", minimum: 4),
        ]
        return hasRepeats ? columns + [.init(title: "REPEATS")] : columns
    }

    private func cells(_ stall: StallOutline, _ hasRepeats: Bool) -> [StyledText] {
        let row = [
            StyledText(ids.short(stall.id)),
            StyledText(width == nil ? stall.startedAt.toSeconds : stall.startedAt.withoutYear),
            stall.styledState,
            StyledText(stall.durationText),
            StyledText(stall.kind.rawValue, limit: 40),
            StyledText(stall.verdict.rawValue, limit: 40),
            StyledText(stall.culpritText, limit: 120),
            StyledText(stall.label),
        ]
        guard hasRepeats else { return row }
        return row + [StyledText(repeats[stall.id].map { width == nil ? $0.dated : $0.short } ?? "")]
    }
}
