public import StallReading
public import StallReports

/// Stores what monitors send, and answers queries about it. Any number of tasks may use it at the same time.
///
/// Everything belongs to a team: a team's query never sees another team's reports. All methods throw an error of the
/// implementation if the store cannot be reached or fails.
public protocol StallStore: Sendable {
    /// Stores all arrivals, or throws. When it returns, all of them are on the disk.
    ///
    /// A version that is already stored, or older than the stored one, changes nothing, so a report may be sent any number of
    /// times.
    ///
    /// - Returns: The number of arrivals that were new, or newer than the stored version.
    func insert(_ arrivals: [Arrival]) async throws -> Int

    /// The first `limit` faults of a time range in this order, with their sums.
    func faults(_ query: StallQuery, by order: FaultOrder, limit: Int) async throws -> FaultList

    /// One fault's sums, by any of its fingerprints. Nil if it has no stall in the range.
    func fault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault?

    /// Stalls, beginning with the latest or the longest.
    ///
    /// - Parameters:
    ///   - fingerprint: If not nil, only stalls of this fault.
    ///   - place: If not nil, only stalls before this place: to continue after the last one of a list of the latest.
    func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        before place: StoredReport.Place?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall]

    /// A report as it was sent. Nil if the team has no report with this id.
    func report(_ id: ULID, team: String) async throws -> [UInt8]?

    /// Reports as they were sent, oldest first, after the place `last`. Returns at most `limit`, and fewer if they are large. An
    /// empty result means that there are no more.
    func reports(_ query: StallQuery, after last: StoredReport.Place?, limit: Int) async throws -> [StoredReport]

    /// The records of runs that are at least partly in the range, as they were sent, sorted by id, after the id `last`. Returns
    /// at most `limit`, and fewer if they are large. An empty result means that there are no more.
    func runs(_ query: StallQuery, after last: ULID?, limit: Int) async throws -> [StoredRun]

    /// The number of stalls in a range, counted up to `limit`.
    func count(_ query: StallQuery, limit: Int) async throws -> Int

    /// How often a fault occurred on each day (UTC) of a range.
    func days(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [DayCount]

    /// The stalls of each service in a range, beginning with the one that was blocked longest.
    func services(_ query: StallQuery) async throws -> ServiceList

    /// The services, releases, hosts and verdicts of a range, most frequent first, for a page's filters.
    func choices(_ query: StallQuery) async throws -> Choices

    /// Stalls in the order of their last arrival or change, after a place in this order. A reader that continues after the last place
    /// it knows misses nothing. A stall that changed may also be at its former places. If several stalls have one place, they are returned
    /// together, even if this exceeds the limit.
    func arrivals(team: String, after place: Int64, limit: Int) async throws -> [(place: Int64, stall: StoredStall)]

    /// The present end of this order.
    func lastPlace() async throws -> Int64

    /// Monitors that were running and have sent nothing since `before`, and whose process was not replaced by another one: on the same
    /// host, or on a host that had none of its service before.
    /// Monitors that have been silent since before `since` are left out: they are no longer expected.
    func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [SilentRun]

    /// Faults that a service has had since a moment but not before, sorted by their first occurrence. Stalls without a report count, too.
    ///
    /// The first fault that a service ever had is not new: nothing was known of the service before.
    ///
    /// - Parameters:
    ///   - services: Only these services. Empty: all.
    ///   - novelty: What counts as new.
    func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault]

    /// Returns if the store works, otherwise throws.
    func check() async throws

    /// All teams' alerts that are not finished.
    func alerts() async throws -> [Alert]

    /// Stores alerts and removes others, in one transaction. An alert is identified by team, rule and subject.
    func change(alerts: [Alert], removing done: [Alert]) async throws

    /// Removes stalls and runs that began before a moment. While the store is larger than `maximumBytes`, it also removes the
    /// oldest ones of the team that uses the most space.
    ///
    /// - Returns: The number of removed stalls.
    func removeOld(before moment: Timestamp, maximumBytes: Int64?) async throws -> Int

    /// The store's size.
    func size() async throws -> StoreSize
}

extension StallStore {
    /// Stalls at any place, beginning with the latest or the longest.
    ///
    /// - Parameter fingerprint: If not nil, only stalls of this fault.
    public func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall] {
        try await stalls(query, of: fingerprint, before: nil, longestFirst: longestFirst, limit: limit)
    }
}

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
