public import StallReports

/// Selects stalls: all conditions must hold.
public struct StallQuery: Hashable, Sendable {
    /// The team whose stalls are searched.
    public var team: String
    /// The first moment of the range. A stall belongs to the range if it started in it.
    public var since: Timestamp
    /// The first moment after the range.
    public var until: Timestamp
    /// Names of services; one of them must match. Empty: any.
    public var services: [String] = []
    /// Versions of services; one of them must match. Empty: any.
    public var releases: [String] = []
    /// Names of hosts; one of them must match. Empty: any.
    public var hosts: [String] = []
    /// Verdicts as in reports; one of them must match. Empty: any.
    public var verdicts: [String] = []
    /// Text that the culprit's name must contain, ignoring case. Nil or empty: any.
    public var text: String?

    /// Creates a query for all stalls of a team that started in `since..<until`.
    public init(team: String, since: Timestamp, until: Timestamp) {
        (self.team, self.since, self.until) = (team, since, until)
    }

    /// The chosen names of each filter. The filters are called like the stores' columns and an address's parameters.
    package var choices: [(String, [String])] { runChoices + [("verdict", verdicts)] }
    /// Those filters that run records have, too.
    package var runChoices: [(String, [String])] { [("service", services), ("release", releases), ("host", hosts)] }

    /// The query without what began after a place. What began at the same moment remains.
    package func ending(at place: StoredReport.Place?) -> StallQuery {
        var query = self
        if let place { query.until = min(until, place.startedAt.advanced(byNanoseconds: 1)) }
        return query
    }

    /// Whether the filters select a stall of its team, whenever that began.
    package func selects(_ stall: StoredStall) -> Bool {
        let names = [stall.service, stall.release, stall.host, stall.verdict.rawValue]
        return zip(choices, names).allSatisfy { choice, name in choice.1.isEmpty || choice.1.contains(name) }
            && Self.contains(stall.culprit, text ?? "")
    }

    /// As the databases compare: by bytes, ignoring the case of ASCII letters only.
    private static func contains(_ name: String, _ text: String) -> Bool {
        func bytes(_ text: String) -> [UInt8] { text.utf8.map { (65...90).contains($0) ? $0 | 0x20 : $0 } }
        let (name, text) = (bytes(name), bytes(text))
        return text.isEmpty || name.indices.contains { name[$0...].starts(with: text) }
    }
}
