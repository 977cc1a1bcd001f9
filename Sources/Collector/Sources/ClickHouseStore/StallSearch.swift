import StallReports
import StallStore

/// Finds the first stalls of a query in some order, without reducing the whole range to one version of each stall.
///
/// The first rows of any version are selected; then the greatest versions of their stalls are read and checked again. Everything
/// before the last selected row is certain. If that is not enough, more rows are selected.
struct StallSearch: Sendable {
    enum Order { case latest, earliest, longest }

    private static let columns = [
        "id", "fingerprint", "started", "duration", "version", "verdict", "service", "release", "host", "label",
        "culprit",
    ]

    private let store: ClickHouseStore
    private let query: StallQuery
    private let order: Order
    /// All fingerprints of one fault. Empty: any fault.
    var fingerprints: [String] = []
    var aliases = FaultAliases()
    /// Only stalls after this place if the earliest come first, otherwise only those before it.
    var bound: StoredReport.Place?

    init(_ store: ClickHouseStore, _ query: StallQuery, _ order: Order) {
        (self.store, self.query, self.order) = (store, query, order)
    }

    func found(_ limit: Int) async throws -> [StoredStall] {
        guard limit > 0 else { return [] }
        let range = store.range(query)
        for part in parts(of: range) where !part.isEmpty {
            let stalls = try await found(limit, in: part)
            if stalls.count == limit || part == range { return stalls }
        }
        return []
    }

    /// The latest and the earliest stalls are first searched near their end of the range, and only then in the whole range.
    private func parts(of range: Range<Int64>) -> [Range<Int64>] {
        let lengths = [6 * Hours.hourNs, 3 * Hours.dayNs].filter { $0 < range.upperBound - range.lowerBound }
        switch order {
        case .latest: return lengths.map { range.upperBound - $0..<range.upperBound } + [range]
        case .earliest:
            let start = min(max(range.lowerBound, bound?.startedAt.sinceEpoch ?? 0), range.upperBound)
            let near = lengths.map { start..<min(range.upperBound, start + $0) }
            return near + [range]
        case .longest: return [range]
        }
    }

    private func found(_ limit: Int, in range: Range<Int64>) async throws -> [StoredStall] {
        var size = limit + 50
        while true {
            let (keys, cut) = try await firstRows(size, in: range)
            let stalls = try await rows(keys).sorted(by: isBefore)
            let certain = cut.map { cut in stalls.filter { !isBefore(cut, rank($0)) } } ?? stalls
            if certain.count >= limit || cut == nil { return Array(certain.prefix(limit)) }
            size *= 4
        }
    }

    /// The value by which stalls are sorted.
    private struct Rank {
        var number: Int64
        var id: String
    }

    private func rank(_ stall: StoredStall) -> Rank {
        Rank(number: order == .longest ? stall.durationNs : stall.startedAt.sinceEpoch, id: stall.id.description)
    }

    private func isBefore(_ left: Rank, _ right: Rank) -> Bool {
        switch order {
        case .latest: (left.number, left.id) > (right.number, right.id)
        case .earliest: (left.number, left.id) < (right.number, right.id)
        case .longest: left.number != right.number ? left.number > right.number : left.id < right.id
        }
    }

    private func isBefore(_ left: StoredStall, _ right: StoredStall) -> Bool { isBefore(rank(left), rank(right)) }

    private var filter: SQLCondition {
        SQLCondition("team = \(SQLLiteral.text(query.team))")
            && .among(query.choices + [("fingerprint", fingerprints)])
            && .named(query.text)
    }

    /// - Returns: The hours and ids of the first rows, and the last row's rank. The rank is nil if there are no more rows.
    private func firstRows(_ size: Int, in range: Range<Int64>) async throws -> (keys: [(Int64, String)], cut: Rank?) {
        let (number, sorting) =
            switch order {
            case .latest: ("started", "started DESC, id DESC")
            case .earliest: ("started", "started, id")
            case .longest: ("duration", "duration DESC, id")
            }
        var condition = filter && .began(in: [range])
        if let bound {
            let (moment, id) = (bound.startedAt.sinceEpoch, SQLLiteral.text(bound.id.description))
            let side = order == .earliest ? ">" : "<"
            condition =
                condition && SQLCondition("(started \(side) \(moment) OR started = \(moment) AND id \(side) \(id))")
        }
        let rows = try await store.ask(
            ["toInt64(hour)", "id", number],
            "FROM \(store.table("stall")) WHERE \(condition.sql) ORDER BY \(sorting) LIMIT \(size)"
        )
        let keys = try rows.map { (try $0.number(0), $0.text(1)) }
        guard rows.count == size, let end = rows.last else { return (keys, nil) }
        return (keys, Rank(number: try end.number(2), id: end.text(1)))
    }

    /// The stalls with these ids that match the query, each in its greatest version.
    func rows(_ keys: [(hour: Int64, id: String)]) async throws -> [StoredStall] {
        guard !keys.isEmpty else { return [] }
        let hours = Set(keys.map(\.hour)).sorted()
        let days = Set(hours.map { $0 / 24 }).sorted()
        return try await store.ask(
            Self.columns,
            """
            FROM \(store.table("stall")) FINAL
            WHERE \(filter.sql) AND day IN \(SQLLiteral.list(days)) AND hour IN \(SQLLiteral.list(hours))
                AND id IN \(SQLLiteral.list(Set(keys.map(\.id)).sorted()))
            """
        ).compactMap(stall)
    }

    /// Nil if another version of the collector wrote the row in an unknown form.
    private func stall(_ row: TabbedAnswer.Row) throws -> StoredStall? {
        guard let id = ULID(row.text(0)), let fingerprint = Fingerprint(rawValue: aliases.root(row.text(1))) else {
            return nil
        }
        return StoredStall(
            id: id,
            fingerprint: fingerprint,
            startedAt: Timestamp(sinceEpoch: try row.number(2)),
            durationNs: try row.number(3),
            isOver: ArrivedStall.isOver(Int64(clamping: try row.unsigned(4))),
            verdict: Verdict(rawValue: row.text(5)),
            service: row.text(6),
            release: row.text(7),
            host: row.text(8),
            label: row.text(9),
            culprit: row.text(10)
        )
    }
}
