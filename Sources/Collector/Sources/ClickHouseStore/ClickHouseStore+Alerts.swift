import StallReports
public import StallStore

extension ClickHouseStore {
    /// Reads all alerts that are not removed.
    public func alerts() async throws -> [Alert] {
        try await ask(
            ["team", "rule", "subject", "text", "began", "ended", "told_begin", "told_end"],
            "FROM \(table("alert")) FINAL WHERE removed = 0 ORDER BY team, rule, subject"
        ).map { row in
            var alert = Alert(
                team: row.text(0),
                rule: row.text(1),
                subject: row.text(2),
                text: row.text(3),
                beganAt: Timestamp(sinceEpoch: try row.number(4))
            )
            let ended = try row.number(5)
            alert.endedAt = ended == Self.lasts ? nil : Timestamp(sinceEpoch: ended)
            (alert.toldBegin, alert.toldEnd) = (Alert.keys(row.text(6)), Alert.keys(row.text(7)))
            return alert
        }
    }

    /// Inserts new versions of all these alerts as one block. ClickHouse has no transactions: a reader sees the block completely
    /// or not at all.
    public func change(alerts: [Alert], removing done: [Alert]) async throws {
        var rows = TabbedRows(
            into: "\(table("alert")) (team, rule, subject, version, removed, text, began, ended, told_begin, told_end)"
        )
        // Changed alerts come after removed ones, as if one statement had followed the other.
        for (alerts, removed) in [(done, 1), (alerts, 0)] {
            for alert in alerts {
                for text in [alert.team, alert.rule, alert.subject] { rows.add(text) }
                rows.add(nextVersion())
                rows.add(removed)
                rows.add(alert.text)
                rows.add(alert.beganAt.sinceEpoch)
                rows.add(alert.endedAt?.sinceEpoch ?? Self.lasts)
                rows.add(Alert.text(alert.toldBegin))
                rows.add(Alert.text(alert.toldEnd))
                rows.endRow()
            }
        }
        try await insert(rows)
    }

    /// Means that an alert has not ended.
    private static let lasts: Int64 = -1
}
