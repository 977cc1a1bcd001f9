import StallReading
import StallReports

@testable import StallStore

/// A store that does what a test says and contains nothing.
struct StubStore: StallStore {
    var checking: @Sendable () async throws -> Void = {}
    var inserting: @Sendable ([Arrival]) async throws -> Int = { $0.count }
    /// Whether it says that a part of it does not answer.
    var isPartial = false
    var known: [Alert] = []
    /// What is done before these are returned.
    var knowing: @Sendable () throws -> Void = {}
    var changing: @Sendable ([Alert]) async throws -> Void = { _ in }
    /// What has arrived, in order.
    var arrived: [(place: Int64, stall: StoredStall)] = []
    /// The maximum number of reports, each of this many bytes.
    var reportBytes: Int?
    /// How many records each query finds.
    var counted = 1
    /// The services that stall.
    var stalling: [ServiceSum] = []
    /// Teams for whose services it has an error.
    var failingTeams: Set<String> = []

    /// Whether it knows its size.
    var hasSize = true

    /// What it finds of any fault.
    var listed: [StoredStall] = []
    /// What is done before a report is returned.
    var reporting: @Sendable () async -> Void = {}

    /// Monitors that became silent.
    var silent: @Sendable () throws -> [SilentRun] = { [] }

    /// Called with the moment before which stalls are removed.
    var removing: @Sendable (Timestamp) async throws -> Void = { _ in }

    struct Failure: Error {}

    func insert(_ arrivals: [Arrival]) async throws -> Int { try await inserting(arrivals) }
    func check() async throws { try await checking() }
    func faults(_: StallQuery, by _: FaultOrder, limit _: Int) -> FaultList {
        FaultList(faults: [], watchedNs: 0, runs: 0, isPartial: isPartial)
    }
    func reports(_: StallQuery, after last: StoredReport.Place?, limit: Int) -> [StoredReport] {
        guard let reportBytes else { return [] }
        let json = [UInt8](repeating: UInt8(ascii: "x"), count: reportBytes)
        let now = Timestamp.now()
        return (0..<min(limit, 4)).map { _ in StoredReport(place: .init(startedAt: now, id: .make()), json: json) }
    }
    func runs(_: StallQuery, after _: ULID?, limit _: Int) -> [StoredRun] { [] }
    func count(_: StallQuery, limit: Int) -> Int { min(counted, limit) }
    func fault(_ fingerprint: Fingerprint, _: StallQuery) -> Fault? {
        listed.isEmpty ? nil : Fault(fingerprint: fingerprint, firstAt: .now(), lastAt: .now())
    }
    func stalls(
        _: StallQuery,
        of _: Fingerprint?,
        before _: StoredReport.Place?,
        longestFirst _: Bool,
        limit _: Int
    ) -> [StoredStall] { listed }
    func report(_: ULID, team _: String) async -> [UInt8]? {
        await reporting()
        return nil
    }
    func days(of _: Fingerprint, _: StallQuery) -> [DayCount] { [] }
    func services(_ query: StallQuery) throws -> ServiceList {
        guard !failingTeams.contains(query.team) else { throw Failure() }
        return ServiceList(services: stalling, isPartial: isPartial)
    }
    func choices(_: StallQuery) -> Choices {
        var choices = Choices()
        choices.isPartial = isPartial
        return choices
    }
    func arrivals(team _: String, after place: Int64, limit _: Int) -> [(place: Int64, stall: StoredStall)] {
        arrived.filter { $0.place > place }
    }
    func lastPlace() -> Int64 { arrived.last?.place ?? 0 }
    func silentRuns(team _: String, since _: Timestamp, before _: Timestamp) throws -> [SilentRun] { try silent() }
    func newFaults(team _: String, services _: [String], since _: Timestamp, novelty _: Novelty, limit _: Int)
        -> [NewFault]
    { [] }
    func alerts() throws -> [Alert] {
        try knowing()
        return known
    }
    func change(alerts: [Alert], removing _: [Alert]) async throws { try await changing(alerts) }
    func removeOld(before moment: Timestamp, maximumBytes _: Int64?) async throws -> Int {
        try await removing(moment)
        return 0
    }
    func size() throws -> StoreSize {
        guard hasSize else { throw Failure() }
        return StoreSize(bytes: 1, stalls: 2, runs: 3)
    }
}

extension StoredStall {
    static func sample() -> StoredStall {
        StoredStall(
            id: .make(),
            fingerprint: .make(kind: .blocked, frames: [], modules: []),
            startedAt: .now(),
            durationNs: 1,
            isOver: true,
            verdict: .onCPU,
            service: "",
            release: "",
            host: "",
            label: "",
            culprit: ""
        )
    }
}

/// Holds up every task until it is opened.
actor Barrier {
    private var isOpen = false
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private(set) var arrived = 0

    func pass() async {
        arrived += 1
        if !isOpen { await withCheckedContinuation { waiting.append($0) } }
    }

    func open() {
        isOpen = true
        for one in waiting { one.resume() }
        waiting = []
    }
}
