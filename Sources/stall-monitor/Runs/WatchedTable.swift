import StallGate
import StallReports

/// Runs, hosts or loops as a table.
struct WatchedTable {
    let rows: [WatchedRow]
    let grouping: WatchedTime.Grouping
    var width: Int?

    private typealias Part = (column: TextTable.Column, cell: (WatchedRow) -> StyledText)

    var lines: [StyledText] {
        let parts = names + sums
        var table = TextTable(parts.map(\.column))
        for row in rows { table.append(parts.map { $0.cell(row) }) }
        return table.lines(width: width)
    }

    /// What a row is about.
    private var names: [Part] {
        switch grouping {
        case .run:
            [
                (.init(title: "STARTED"), { Self.time($0.startedAt, width) }),
                (.init(title: "ENDED", rank: 9), { $0.state == .running ? "running" : Self.time($0.endedAt, width) }),
                (.init(title: "STATE", rank: 3), { StyledText($0.state?.rawValue ?? "unknown", $0.style, limit: 40) }),
                (.init(title: "SERVICE", minimum: 8, rank: 7), { StyledText($0.service ?? "", limit: 60) }),
                (
                    .init(title: "RELEASE", minimum: 7, rank: 2, hidesEmpty: true),
                    { StyledText($0.release ?? "", limit: 60) }
                ),
                (.init(title: "HOST", minimum: 8, rank: 8), { StyledText($0.host ?? "", limit: 60) }),
                (.init(title: "PID", rank: 1), { StyledText($0.pid.map { "\($0)" } ?? "") }),
                (.init(title: "LOOPS", rank: 0), { "\($0.loops)" }),
            ]
        case .host:
            [
                (.init(title: "HOST", minimum: 20), { StyledText($0.host ?? "", .bold, limit: 120) }),
                (.init(title: "RUNS", rank: 2), { "\($0.runs)" }), (.init(title: "LOOPS", rank: 1), { "\($0.loops)" }),
            ]
        case .loop:
            [
                (.init(title: "LOOP", minimum: 16), { StyledText($0.label ?? "unknown", .bold, limit: 120) }),
                (.init(title: "TYPE", rank: 2), { StyledText($0.type?.rawValue ?? "", limit: 40) }),
                (.init(title: "SERVICE", minimum: 8, rank: 7), { StyledText($0.service ?? "", limit: 60) }),
                (.init(title: "RUNS", rank: 1), { "\($0.runs)" }),
                (
                    .init(title: "TURNS/S", rank: 5, hidesEmpty: true),
                    { StyledText($0.turnsPerSecond.map(Figure.short) ?? "") }
                ),
                (.init(title: "P99 TURN", rank: 4, hidesEmpty: true), { Self.length($0.p99TurnNs) }),
                (.init(title: "MAX TURN", rank: 3, hidesEmpty: true), { Self.length($0.maxTurnNs) }),
            ]
        }
    }

    private var sums: [Part] {
        [
            (.init(title: "WATCHED"), { Self.length($0.watchedNs) }), (.init(title: "STALLS"), { "\($0.stalls)" }),
            (.init(title: "BLOCKED"), { Self.length($0.totalNs) }),
            (.init(title: "SHARE", rank: 6), { StyledText($0.share.map(FaultTable.percent) ?? "") }),
            (.init(title: "WORST", rank: 5), { Self.length($0.longestNs) }),
        ]
    }

    private static func time(_ moment: Timestamp?, _ width: Int?) -> StyledText {
        StyledText(moment.map { width == nil ? $0.toSeconds : $0.withoutYear } ?? "")
    }

    private static func length(_ nanoseconds: Int64?) -> StyledText {
        StyledText(nanoseconds.map { DurationText(nanoseconds: $0).short } ?? "")
    }
}

extension WatchedRow {
    fileprivate var style: StyledText.Style? {
        switch state {
        case .running?: .green
        case .terminated?: .red
        default: nil
        }
    }
}
