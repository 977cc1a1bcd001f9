/// Counts how often each expected value was reported as which value.
struct ConfusionMatrix {
    let columns: [String]
    let rows: [(name: String, counts: [Int])]

    private static let missed = "missed"
    private static let silence = "silence"

    /// The matrix of verdicts; `kinds` is the one of kinds.
    static func verdicts(_ outcomes: [Outcome]) -> ConfusionMatrix {
        ConfusionMatrix(outcomes, expected: { $0.expected.verdicts.joined(separator: "/") }, found: \.verdict)
    }

    static func kinds(_ outcomes: [Outcome]) -> ConfusionMatrix {
        ConfusionMatrix(outcomes, expected: { $0.expected.kinds.joined(separator: "/") }, found: \.kind)
    }

    private init(
        _ outcomes: [Outcome],
        expected: (StallFinding) -> String,
        found: (FoundStall) -> String
    ) {
        let played = outcomes.filter { $0.skipped == nil && $0.failure == nil }
        var pairs = played.flatMap(\.stalls).map { (expected($0), $0.found.map(found) ?? Self.missed) }
        pairs += played.flatMap(\.falseAlarms).map { (Self.silence, found($0)) }
        pairs += played.filter { !$0.isStall && $0.falseAlarms.isEmpty }.map { _ in (Self.silence, Self.silence) }
        let names =
            Set(pairs.map(\.1)).subtracting([Self.missed, Self.silence]).sorted() + [Self.missed, Self.silence]
        columns = names
        rows = Set(pairs.map(\.0)).sorted { ($0 == Self.silence ? 1 : 0, $0) < ($1 == Self.silence ? 1 : 0, $1) }
            .map { row in (row, names.map { name in pairs.count { $0 == (row, name) } }) }
    }

    var lines: [String] {
        let table = [[""] + columns] + rows.map { [$0.name] + $0.counts.map { $0 == 0 ? "." : "\($0)" } }
        return TextColumns.lines(table)
    }
}

/// A plain text table: the first column is left-aligned, the others are right-aligned.
enum TextColumns {
    static func lines(_ rows: [[String]]) -> [String] {
        let count = rows.map(\.count).max() ?? 0
        let widths = (0..<count).map { column in
            rows.compactMap { $0.indices.contains(column) ? $0[column].count : nil }.max() ?? 0
        }
        return rows.map { row in
            zip(row, widths).enumerated().map { index, cell in
                let space = String(repeating: " ", count: cell.1 - cell.0.count)
                return index == 0 ? cell.0 + space : space + cell.0
            }.joined(separator: "  ")
        }
    }
}
