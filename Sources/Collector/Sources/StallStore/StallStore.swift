public import StallReports

/// Keeps what monitors sent, and answers what is asked of it. For use by any number of tasks at once.
///
/// Everything belongs to a team: no question of one team is answered from another's reports.
public protocol StallStore: Sendable {
    /// Keeps all of it or throws. When it returns, all of it is on the disk.
    ///
    /// What is known already, and what is older than that, changes nothing: it may be sent any number of times.
    ///
    /// - Returns: how many of them were new, or newer than what was known.
    func insert(_ arrivals: [Arrival]) async throws -> Int

    /// The faults of a range of time, the first by `order`, with their sums.
    func faults(_ query: StallQuery, by order: FaultOrder, limit: Int) async throws -> FaultList

    /// One fault's sums, by any of its fingerprints. Nil where it has no stall in the range.
    func fault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault?

    /// Stalls, the latest first, or the longest.
    ///
    /// - Parameter fingerprint: of one fault only.
    func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall]

    /// A report as it was sent. Nil where the team has none of that id.
    func report(_ id: ULID, team: String) async throws -> [UInt8]?

    /// Reports as they were sent, the oldest first: those behind another. At most as many as asked for, fewer where they are large, and none
    /// only where there are no more.
    func reports(_ query: StallQuery, after last: StoredReport.Place?, limit: Int) async throws -> [StoredReport]

    /// The records of runs that lie in a range at least in part, as they were sent, by their ids: those behind another. At most as many as asked
    /// for, fewer where they are large, and none only where there are no more.
    func runs(_ query: StallQuery, after last: ULID?, limit: Int) async throws -> [StoredRun]

    /// Stalls of a range; no more than `limit` are counted.
    func count(_ query: StallQuery, limit: Int) async throws -> Int

    /// How often a fault came on each day (UTC) of a range.
    func days(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [DayCount]

    /// What there is to choose from: services, releases, hosts and verdicts of a range, the most frequent first.
    func choices(_ query: StallQuery) async throws -> Choices

    /// Stalls in the order in which they came, or changed, for the last time: those behind a place in it. No place is used twice, so that a
    /// reader that goes on behind the last place it knows misses nothing.
    func arrivals(team: String, after place: Int64, limit: Int) async throws -> [(place: Int64, stall: StoredStall)]

    /// Where that order ends just now.
    func lastPlace() async throws -> Int64

    /// Of each service on each host the record that was made last, since a moment.
    func latestRuns(team: String, since: Timestamp) async throws -> [LatestRun]

    /// Monitors that were running and have said nothing since `before`, whose process was not replaced by another one since. Those that have
    /// been silent since before `since` are not expected any more.
    func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [LatestRun]

    /// Faults that a service has had since a moment, and did not have earlier; those that came first are first.
    ///
    /// A service of which nothing is known from before that moment has no new faults.
    ///
    /// - Parameters:
    ///   - services: of these; empty for all.
    ///   - novelty: compared with what.
    func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault]

    /// Returns if the store answers.
    func check() async throws

    /// All teams' alerts that are not done with.
    func alerts() async throws -> [Alert]

    /// Keeps alerts as they are now, and forgets others, all of it or nothing. Both are known by team, rule and subject.
    func change(alerts: [Alert], removing done: [Alert]) async throws

    /// Removes what began before a moment, and then, where it is more than `maximumBytes`, what is oldest of the team that takes most.
    ///
    /// - Returns: how many stalls were removed.
    func removeOld(before moment: Timestamp, maximumBytes: Int64?) async throws -> Int

    /// Bytes that it takes, and the stalls in it.
    func size() async throws -> StoreSize
}

extension StallStore {
    /// By the last record of each service on each host: a process that goes on hides one that died beside it.
    public func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [LatestRun] {
        try await latestRuns(team: team, since: since).filter { $0.isRunning && $0.updatedAt < before }
    }

    /// By a question for each service and each of its 1000 first faults. Of releases it knows nothing.
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

/// Compared with what a fault is new.
public enum Novelty: Hashable, Sendable {
    /// The service never had it.
    case service
    /// The service did not have it in the release before.
    case release
}

/// A fault that a service did not have before.
public struct NewFault: Hashable, Sendable {
    public var fingerprint: Fingerprint
    public var service: String
    /// The one it is new in. Empty where that was not asked for.
    public var release: String
    public var firstAt: Timestamp

    public init(fingerprint: Fingerprint, service: String, release: String = "", firstAt: Timestamp) {
        (self.fingerprint, self.service, self.release) = (fingerprint, service, release)
        self.firstAt = firstAt
    }
}

public struct FaultList: Sendable {
    public var faults: [Fault]
    /// How long all watched things of all runs were watched in the range; 0 if nobody knows.
    public var watchedNs: Int64
    /// Monitors that ran in the range.
    public var runs: Int
    /// A part of the store did not answer: the faults are those of the rest.
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
    /// Where it stands among the others: by its time, and then by its id.
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
    /// Its first moment.
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

/// Which stalls are asked for.
public struct StallQuery: Hashable, Sendable {
    public var team: String
    /// The first moment, in which a stall may have begun.
    public var since: Timestamp
    /// The first moment behind the range.
    public var until: Timestamp
    /// Of each: empty for all of them.
    public var services: [String] = []
    public var releases: [String] = []
    public var hosts: [String] = []
    public var verdicts: [String] = []
    /// What the culprit's name contains; capitals and small letters are the same.
    public var text: String?

    public init(team: String, since: Timestamp, until: Timestamp) {
        (self.team, self.since, self.until) = (team, since, until)
    }
}
