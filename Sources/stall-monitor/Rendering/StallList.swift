import StallReports

/// Stalls as a table, the newest last.
struct StallList {
    let stalls: [StallOutline]
    let ids: ShortIDs
    let faults: ShortFingerprints
    /// Stalls like it that were only counted, by the report.
    var repeats: [ULID: StallReport.Repeats] = [:]
    var now: Timestamp = .now()
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
            .init(title: "ID"), .init(title: "STARTED", rank: 2), .init(title: "AGE", rank: 5),
            .init(title: "STATE", minimum: 9, rank: 6), .init(title: "DURATION"),
            .init(title: "KIND", rank: 1), .init(title: "VERDICT", minimum: 7, rank: 8),
            .init(title: "CULPRIT", minimum: 20), .init(title: "LABEL", minimum: 5, rank: 7),
            .init(title: "FAULT", rank: 4),
        ]
        let shown = columns.filter { width != nil || $0.title != "AGE" }
        return hasRepeats ? shown + [.init(title: "REPEATS", rank: 3)] : shown
    }

    private func cells(_ stall: StallOutline, _ hasRepeats: Bool) -> [StyledText] {
        // What is read by programs is to be the same a minute later.
        let age = width == nil ? [] : [StyledText(stall.startedAt.age(now))]
        let row =
            [
                StyledText(ids.short(stall.id)),
                StyledText(width == nil ? stall.startedAt.toSeconds : stall.startedAt.withoutYear),
            ] + age + [
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
