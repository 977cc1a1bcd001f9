import StallReading
import StallReports
import StallStore
import Testing

@testable import StallCollector

/// A store that accepts nothing before it is opened.
actor SlowStore: StallStore {
    private(set) var batches: [Int] = []
    private var isOpen = false
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private let fails: Bool

    init(fails: Bool = false) { self.fails = fails }

    func insert(_ arrivals: [Arrival]) async throws -> Int {
        if !isOpen { await withCheckedContinuation { waiting.append($0) } }
        batches.append(arrivals.count)
        if fails { throw RefusedArrival("full") }
        return arrivals.count
    }

    func open() {
        isOpen = true
        for one in waiting { one.resume() }
        waiting = []
    }

    func faults(_: StallQuery, by _: FaultOrder, limit _: Int) -> FaultList { fatalError("not asked") }
    func reports(_: StallQuery, after _: StoredReport.Place?, limit _: Int) -> [StoredReport] { [] }
    func runs(_: StallQuery, after _: ULID?, limit _: Int) -> [StoredRun] { [] }
    /// More than a query may return.
    func count(_: StallQuery, limit: Int) -> Int { limit }
    func fault(_: Fingerprint, _: StallQuery) -> Fault? { nil }
    func stalls(
        _: StallQuery,
        of _: Fingerprint?,
        before _: StoredReport.Place?,
        longestFirst _: Bool,
        limit _: Int
    ) -> [StoredStall] { [] }
    func report(_: ULID, team _: String) -> [UInt8]? { nil }
    func days(of _: Fingerprint, _: StallQuery) -> [DayCount] { [] }
    func choices(_: StallQuery) -> Choices { Choices() }
    func arrivals(team _: String, after _: Int64, limit _: Int) -> [(place: Int64, stall: StoredStall)] { [] }
    func lastPlace() -> Int64 { 0 }
    func silentRuns(team _: String, since _: Timestamp, before _: Timestamp) -> [SilentRun] { [] }
    func newFaults(team _: String, services _: [String], since _: Timestamp, novelty _: Novelty, limit _: Int)
        -> [NewFault]
    { [] }
    func check() {}
    func alerts() -> [Alert] { [] }
    func change(alerts _: [Alert], removing _: [Alert]) {}
    func removeOld(before _: Timestamp, maximumBytes _: Int64?) -> Int { 0 }
    func size() -> StoreSize { fatalError("not asked") }
}

@Suite("The queue before the store")
struct IngestQueueTests {
    private static func arrival() throws -> Arrival {
        let now = Timestamp.now()
        let run = RunRecord(
            startedAt: now,
            updatedAt: now,
            host: .init(name: "web1"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        return try Arrival(json: run.json(), team: "a")
    }

    @Test("Requests that arrive while the disk is busy are written together, then answered", arguments: [false, true])
    func together(fails: Bool) async throws {
        let store = SlowStore(fails: fails)
        let queue = IngestQueue(store, maximumBytes: 1000)
        let arrival = try Self.arrival()
        let requests = 20
        let answers = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<requests {
                group.addTask { (try? await queue.insert([arrival], size: 1)) != nil }
            }
            // The store has the first; the others wait behind it.
            while await queue.waitingBytes < requests { await Task.yield() }
            await store.open()
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers == Array(repeating: !fails, count: requests))
        #expect(await store.batches == [1, requests - 1])
    }

    @Test("A request that would be too much is refused at once")
    func overload() async throws {
        let store = SlowStore()
        let queue = IngestQueue(store, maximumBytes: 100)
        let arrival = try Self.arrival()
        async let first = queue.insert([arrival], size: 90)
        // The first has its place before the store gets it.
        while await queue.waitingBytes < 90 { await Task.yield() }
        await #expect(throws: IngestQueue.Overloaded.self) { try await queue.insert([arrival], size: 20) }
        await store.open()
        #expect(try await first == 1)
    }
}
