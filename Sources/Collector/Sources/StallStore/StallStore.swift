public import StallReports

/// Stores what monitors sent, and answers queries about it. Any number of tasks may use it at the same time.
///
/// Everything belongs to a team: a team's query never sees another team's reports.
public protocol StallStore: Sendable {
    /// Stores all of them or throws. When it returns, all of them are on the disk.
    ///
    /// A version that is stored already, or older than the stored one, changes nothing: reports may be sent any number of times.
    ///
    /// - Returns: how many of them were new, or newer than the stored version.
    func insert(_ arrivals: [Arrival]) async throws -> Int

    /// The first faults of a time range in this order, with their sums.
    func faults(_ query: StallQuery, by order: FaultOrder, limit: Int) async throws -> FaultList

    /// One fault's sums, by any of its fingerprints. Nil if it has no stall in the range.
    func fault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault?

    /// Stalls, the latest or the longest first.
    ///
    /// - Parameter fingerprint: if not nil, only stalls of this fault.
    func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall]

    /// A report as it was sent. Nil if the team has no report with this id.
    func report(_ id: ULID, team: String) async throws -> [UInt8]?

    /// Reports as they were sent, the oldest first, after the place `last`. At most `limit`, fewer if they are large, and none
    /// only if there are no more.
    func reports(_ query: StallQuery, after last: StoredReport.Place?, limit: Int) async throws -> [StoredReport]

    /// The records of runs that are at least partly in the range, as they were sent, sorted by id, after the id `last`. At most `limit`,
    /// fewer if they are large, and none only if there are no more.
    func runs(_ query: StallQuery, after last: ULID?, limit: Int) async throws -> [StoredRun]

    /// The number of stalls in a range; it counts up to `limit`.
    func count(_ query: StallQuery, limit: Int) async throws -> Int

    /// How often a fault occurred on each day (UTC) of a range.
    func days(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [DayCount]

    /// The services, releases, hosts and verdicts of a range, the most frequent first, for a page's filters.
    func choices(_ query: StallQuery) async throws -> Choices

    /// Stalls in the order of their last arrival or change, after a place in this order. No place is used twice, so that a
    /// reader that continues after the last place it knows misses nothing.
    func arrivals(team: String, after place: Int64, limit: Int) async throws -> [(place: Int64, stall: StoredStall)]

    /// The current end of this order.
    func lastPlace() async throws -> Int64

    /// The latest run record of each service on each host, if it was made since this moment.
    func latestRuns(team: String, since: Timestamp) async throws -> [LatestRun]

    /// Monitors that were running and have sent nothing since `before`, and whose process was not replaced by another one. Monitors that have
    /// been silent since before `since` are no longer expected.
    func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [LatestRun]

    /// Faults that a service has had since a moment and did not have before, sorted by their first occurrence.
    ///
    /// A service without stalls from before that moment has no new faults.
    ///
    /// - Parameters:
    ///   - services: only these; empty: all.
    ///   - novelty: what counts as new.
    func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault]

    /// Returns if the store works, and throws otherwise.
    func check() async throws

    /// All teams' alerts that are not finished.
    func alerts() async throws -> [Alert]

    /// Stores alerts and removes others, in one transaction. An alert is identified by team, rule and subject.
    func change(alerts: [Alert], removing done: [Alert]) async throws

    /// Removes what began before a moment; then, while the store is larger than `maximumBytes`, the oldest of the team that uses most space.
    ///
    /// - Returns: how many stalls were removed.
    func removeOld(before moment: Timestamp, maximumBytes: Int64?) async throws -> Int

    /// The store's size in bytes and in stalls.
    func size() async throws -> StoreSize
}

extension StallStore {
    /// Uses the latest record of each service on each host: a process that is running hides another one on the same host that died.
    public func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [LatestRun] {
        try await latestRuns(team: team, since: since).filter { $0.isRunning && $0.updatedAt < before }
    }

    /// Makes a query for each service and for each of its first 1000 faults. Does not support comparing releases.
    public func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault] {
        guard novelty == .service else { return [] }
        let end = max(since, Timestamp.now()).advanced(byNanoseconds: 86_400_000_000_000)
        var (recent, history) = (
            StallQuery(team: team, since: since, until: end),
            StallQuery(team: team, since: Timestamp(seconds: 0), until: end)
        )
        var found: [NewFault] = []
        for service in services.isEmpty ? try await choices(recent).services : services {
            (recent.services, history.services) = ([service], [service])
            var past = history
            past.until = since
            guard try await count(past, limit: 1) > 0 else { continue }
            for fault in try await faults(recent, by: .total, limit: 1000).faults {
                guard let whole = try await self.fault(fault.fingerprint, history), whole.firstAt >= since else {
                    continue
                }
                found.append(NewFault(fingerprint: fault.fingerprint, service: service, firstAt: whole.firstAt))
            }
        }
        return Array(found.sorted { $0.firstAt < $1.firstAt }.prefix(max(0, limit)))
    }

    public func check() async throws { _ = try await lastPlace() }
}

/// What makes a fault new.
public enum Novelty: Hashable, Sendable {
    /// The service never had it before.
    case service
    /// The service did not have it in the previous release.
    case release
}

/// A fault that a service did not have before.
public struct NewFault: Hashable, Sendable {
    public var fingerprint: Fingerprint
    public var service: String
    /// The release in which it is new. Empty if the query was not about releases.
    public var release: String
    public var firstAt: Timestamp

    public init(fingerprint: Fingerprint, service: String, release: String = "", firstAt: Timestamp) {
        (self.fingerprint, self.service, self.release) = (fingerprint, service, release)
        self.firstAt = firstAt
    }
}

public struct FaultList: Sendable {
    public var faults: [Fault]
    /// The total watched time of all loops of all runs in the range; 0 if it is not known.
    public var watchedNs: Int64
    /// The number of monitors that ran in the range.
    public var runs: Int
    /// Whether a part of the store did not answer: then the faults are those of the other parts.
    public var isPartial = false

    package init(faults: [Fault], watchedNs: Int64, runs: Int, isPartial: Bool = false) {
        (self.faults, self.watchedNs, self.runs, self.isPartial) = (faults, watchedNs, runs, isPartial)
    }
}

public struct StoredStall: Hashable, Sendable {
    public var id: ULID
    public var fingerprint: Fingerprint
    public var startedAt: Timestamp
    public var durationNs: Int64
    public var isOver: Bool
    public var verdict: Verdict
    public var service: String
    public var release: String
    public var host: String
    public var label: String
    public var culprit: String

    package init(
        id: ULID,
        fingerprint: Fingerprint,
        startedAt: Timestamp,
        durationNs: Int64,
        isOver: Bool,
        verdict: Verdict,
        service: String,
        release: String,
        host: String,
        label: String,
        culprit: String
    ) {
        (self.id, self.fingerprint, self.startedAt) = (id, fingerprint, startedAt)
        (self.durationNs, self.isOver, self.verdict) = (durationNs, isOver, verdict)
        (self.service, self.release, self.host) = (service, release, host)
        (self.label, self.culprit) = (label, culprit)
    }
}

public struct StoredReport: Sendable {
    /// The report's place in the order: by time, then by id.
    public struct Place: Hashable, Sendable {
        public var startedAt: Timestamp
        public var id: ULID

        package init(startedAt: Timestamp, id: ULID) { (self.startedAt, self.id) = (startedAt, id) }
    }

    public var place: Place
    public var json: [UInt8]

    package init(place: Place, json: [UInt8]) { (self.place, self.json) = (place, json) }
}

public struct StoredRun: Sendable {
    public var id: ULID
    public var json: [UInt8]

    package init(id: ULID, json: [UInt8]) { (self.id, self.json) = (id, json) }
}

public struct DayCount: Hashable, Sendable {
    /// The day's first moment.
    public var day: Timestamp
    public var count: Int64
    public var totalNs: Int64

    package init(day: Timestamp, count: Int64, totalNs: Int64) {
        (self.day, self.count, self.totalNs) = (day, count, totalNs)
    }
}

public struct Choices: Hashable, Sendable {
    public var services: [String] = []
    public var releases: [String] = []
    public var hosts: [String] = []
    public var verdicts: [String] = []

    public init() {}
}

public struct StoreSize: Hashable, Sendable {
    public var bytes: Int64
    public var stalls: Int64
    public var runs: Int64

    package init(bytes: Int64, stalls: Int64, runs: Int64) {
        (self.bytes, self.stalls, self.runs) = (bytes, stalls, runs)
    }
}

/// Selects stalls.
public struct StallQuery: Hashable, Sendable {
    public var team: String
    /// The first moment of the range. A stall belongs to the range if it started in it.
    public var since: Timestamp
    /// The first moment after the range.
    public var until: Timestamp
    /// Empty: any.
    public var services: [String] = []
    public var releases: [String] = []
    public var hosts: [String] = []
    public var verdicts: [String] = []
    /// Text that the culprit's name contains, without regard to case.
    public var text: String?

    public init(team: String, since: Timestamp, until: Timestamp) {
        (self.team, self.since, self.until) = (team, since, until)
    }
}
