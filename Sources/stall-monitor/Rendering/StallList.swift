import StallReports

/// Stalls as a table, the newest last.
struct StallList {
    let stalls: [StallOutline]
    let ids: ShortIDs
    let faults: ShortFingerprints
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
            .init(title: "ID"), .init(title: "STARTED", rank: 6), .init(title: "STATE", rank: 3),
            .init(title: "DURATION"),
            .init(title: "KIND", rank: 1), .init(title: "VERDICT", minimum: 8, rank: 7),
            .init(title: "CULPRIT", minimum: 28), .init(title: "LABEL", minimum: 6, rank: 4),
            .init(title: "FAULT", rank: 5),
        ]
        return hasRepeats ? columns + [.init(title: "REPEATS", rank: 2)] : columns
    }

    private func cells(_ stall: StallOutline, _ hasRepeats: Bool) -> [StyledText] {
        let row = [
            StyledText(ids.short(stall.id)),
            StyledText(width == nil ? stall.startedAt.toSeconds : stall.startedAt.withoutYear),
            stall.styledState,
            StyledText(stall.durationText),
            stall.kind.styled,
            stall.verdict.styled,
            StyledText(stall.culpritText, limit: 120),
            StyledText(stall.label, limit: 120),
            StyledText(faults.short(stall.fingerprint), .dim),
        ]
        guard hasRepeats else { return row }
        return row + [StyledText(repeats[stall.id].map { width == nil ? $0.dated : $0.short } ?? "")]
    }
}
