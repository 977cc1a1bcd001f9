import Foundation
import StallReading
import StallReports
import StallStore
import Testing

/// What every store must do. The suites beside it run it on each store.
struct StoreContract {
    /// One requirement.
    struct Check: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let run: @Sendable (StoreContract) async throws -> Void

        init(_ description: String, _ run: @escaping @Sendable (StoreContract) async throws -> Void) {
            (testDescription, self.run) = (description, run)
        }
    }

    static let all: [Check] =
        [
            Check("What comes a second time changes nothing") { try await $0.idempotent() },
            Check("A stall that has ended comes in the place of the one that lasted, and never the other way round") {
                try await $0.versions()
            },
            Check("No team sees another's") { try await $0.teams() },
            Check("A fault that has got names is one with what it was before") { try await $0.aliases() },
            Check("A fault has any number of former fingerprints") { try await $0.manyAliases() },
            Check("A report that has got names replaces the one without") { try await $0.amendment() },
            Check("A version that is ignored gives its fault no other name, and takes none") {
                try await $0.ignoredAliases()
            },
            Check("A run's counts are those of its latest record, and its time that of the range") {
                try await $0.runs()
            },
            Check("The end of a run is kept also if the host's clock was set back before it") {
                try await $0.clockSetBack()
            },
            Check("After a host's clock was set back, its running records are stored, and its ended run stays ended") {
                try await $0.clockSetBackWhileRunning()
            },
            Check("Of a long run the watched time in a range is that of the whole range") { try await $0.longRun() },
            Check("What a run counted under two fingerprints of one fault is added up") {
                try await $0.countedAliases()
            },
            Check("Reports and run records come page by page, each once, in order, as they were sent") {
                try await $0.pages()
            },
            Check("Large documents come in small pages, and all of them come") { try await $0.largePages() },
            Check("What is old is removed, and what is left has the sums of what is left") { try await $0.age() },
            Check("Where it is too large the oldest is removed") { try await $0.size() },
            Check("Lengths at the ends of 64 bits are no trouble") { try await $0.extremes() },
            Check("Sums that are larger than 64 bits are held at their end") { try await $0.overflow() },
            Check("Filters by verdict and by a part of a name choose what they say") { try await $0.filters() },
            Check("Faults come in each of the orders, and no more than asked for") { try await $0.orders() },
            Check("A thousand faults are listed, with all that belongs to each") { try await $0.manyFaults() },
            Check("The trend of some hours is that of their stalls, also of an hour that has only its sum") {
                try await $0.shortTrend()
            },
            Check("The stalls of each service are summed, however many services there are") { try await $0.services() },
            Check("What there is to choose from is told, the most frequent first") { try await $0.choices() },
            Check("Stalls are found longest or latest first, of one fault or all") { try await $0.lists() },
            Check("Stalls come in the order in which they arrived, each behind a place") { try await $0.feed() },
            Check("A process that died is silent though another runs beside it; one that was replaced is not") {
                try await $0.silence()
            },
            Check("A host that died is replaced by one that had no process of the service before") {
                try await $0.silentPods()
            },
            Check("A fault is new for each service by itself, and for a release compared with the one before") {
                try await $0.news()
            },
            Check("Stalls without a report make a fault known or new, as others do") { try await $0.countedNews() },
            Check("Stalls that a watcher only counted are those of the services that it watches") {
                try await $0.watchersCounts()
            },
            Check("The time that a watcher watched is that of the services that it watches") {
                try await $0.watchersTime()
            },
            Check("A stall that turns out to be of another fault makes the first one not known") {
                try await $0.changedNews()
            },
            Check("It says that it works") { try await $0.check() },
            Check("Alerts are kept, changed and forgotten together") { try await $0.alerts() },
            Check("What two collectors write at once is there once") { try await $0.race() },
            Check("Names of any kind come back as they were, and change no other") { try await $0.hostile() },
        ]
        + (1...8).map { seed in
            Check("Sums are those of the stalls in the range, whatever lies in whole hours and days (\(seed))") {
                try await $0.sums(seed: seed)
            }
        }

    /// With fewer repetitions, for a server, which takes milliseconds for each query. All of them with TEST_ALL.
    static let short = ProcessInfo.processInfo.environment["TEST_ALL"] == nil ? Array(all.dropLast(6)) : all

    static let now = Timestamp(rfc3339: "2026-06-15T12:34:56Z")!
    let store: TestedStore

    init(_ store: TestedStore) { self.store = store }

    func withStore(_ work: (any StallStore) async throws -> Void) async throws {
        try await store.withStores(1) { try await work($0[0]) }
    }

    static func report(
        id: ULID = .make(),
        hoursAgo: Double = 1,
        milliseconds: Int64 = 500,
        state: StallState = .recovered,
        function: String = "total()",
        host: String = "web1",
        service: String = "shop",
        release: String = "1.2"
    ) -> StallReport {
        let start = now.advanced(byNanoseconds: -Int64(hoursAgo * 3_600_000_000_000))
        return .sample(
            id: id,
            startedAt: start,
            milliseconds: milliseconds,
            state: state,
            function: function,
            verdict: .onCPU,
            service: service,
            release: release,
            host: host
        )
    }

    static func arrival(_ report: StallReport, team: String = "a") throws -> Arrival {
        try Arrival(json: report.json(), team: team, now: now)
    }

    static func query(days: Int64 = 30, team: String = "a") -> StallQuery {
        StallQuery(team: team, since: now.advanced(byNanoseconds: -days * 86_400_000_000_000), until: now)
    }

    /// A second copy changes nothing.
    func idempotent() async throws {
        try await withStore { store in
            let arrivals = try [Self.report(), Self.report(milliseconds: 700)].map { try Self.arrival($0) }
            #expect(try await store.insert(arrivals) == 2)
            #expect(try await store.insert(arrivals + arrivals) == 0)
            let list = try await store.faults(Self.query(), by: .total, limit: 10)
            #expect(list.faults.map(\.count) == [2])
            #expect(list.faults.map(\.totalNs) == [1_200_000_000])
        }
    }

    /// An ended stall replaces the ongoing one, and never the other way round.
    func versions() async throws {
        try await withStore { store in
            let id = ULID.make()
            let over = Self.report(id: id, milliseconds: 900)
            let ongoing = Self.report(id: id, milliseconds: 300, state: .ongoing, function: "early()")
            #expect(try await store.insert([Self.arrival(ongoing)]) == 1)
            #expect(try await store.insert([Self.arrival(over)]) == 1)
            #expect(try await store.insert([Self.arrival(ongoing)]) == 0)
            let faults = try await store.faults(Self.query(), by: .total, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [over.fingerprint])
            #expect(faults.map(\.totalNs) == [900_000_000])
            #expect(faults.map(\.count) == [1])
            #expect(faults.first?.hosts == ["web1": 1])
            let json = try #require(try await store.report(id, team: "a"))
            #expect(try StallReport(json: json) == over)
        }
    }

    /// Sums are those of the stalls in the range, including whole hours and days.
    func sums(seed: UInt64) async throws {
        try await withStore { store in
            print("seed: \(seed)")
            var state = seed
            func random(_ bound: UInt64) -> UInt64 {
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                return (state >> 33) % bound
            }
            let all = (0..<300).map { _ in
                Self.report(
                    hoursAgo: Double(random(24 * 4 * 60)) / 60,
                    milliseconds: 250 + Int64(random(5000)),
                    function: "function\(random(4))()",
                    host: "web\(random(3))",
                    service: "service\(random(2))",
                    release: "1.\(random(2))"
                )
            }
            // Some hours have sums, some no longer have them, and some never had any.
            let first = all.prefix(200)
            #expect(try await store.insert(first.map { try Self.arrival($0) }) == first.count)
            try await self.store.settle(store)
            let late = all.dropFirst(200).filter { seed % 2 == 0 || $0.service?.name == "service0" }
            #expect(try await store.insert((late + first.prefix(50)).map { try Self.arrival($0) }) == late.count)
            let reports = first + late
            for turn in 0..<20 {
                if turn == 10 { try await self.store.settle(store) }
                var query = Self.query()
                query.since = Self.now.advanced(byNanoseconds: -Int64(random(24 * 5 * 60) + 1) * 60_000_000_000)
                query.until = query.since.advanced(byNanoseconds: Int64(random(24 * 4 * 60) + 1) * 60_000_000_000)
                if random(3) == 0 { query.services = ["service0"] }
                if random(3) == 0 { query.hosts = ["web1", "web2"] }
                if random(3) == 0 { query.releases = ["1.1"] }
                let expected = reports.filter { report in
                    report.startedAt >= query.since && report.startedAt < query.until
                        && (query.services.isEmpty || query.services.contains(report.service?.name ?? ""))
                        && (query.hosts.isEmpty || query.hosts.contains(report.host.name))
                        && (query.releases.isEmpty || query.releases.contains(report.service?.version ?? ""))
                }
                let faults = try await store.faults(query, by: .total, limit: 100).faults
                let groups = Dictionary(grouping: expected, by: \.fingerprint)
                #expect(Set(faults.map(\.fingerprint)) == Set(groups.keys))
                #expect(faults.map(\.totalNs) == faults.map(\.totalNs).sorted(by: >))
                for fault in faults {
                    let group = groups[fault.fingerprint] ?? []
                    #expect(fault.count == Int64(group.count))
                    #expect(fault.totalNs == group.map(\.durationNs).reduce(0, +))
                    #expect(fault.longestNs == group.map(\.durationNs).max())
                    #expect(fault.firstAt == group.map(\.startedAt).min())
                    #expect(fault.trend.counts.reduce(0, +) == fault.count)
                    #expect(fault.hosts == Dictionary(group.map { ($0.host.name, 1) }, uniquingKeysWith: +))
                    #expect(fault.services == Dictionary(group.map { ($0.service!.name, 1) }, uniquingKeysWith: +))
                    let days = try await store.days(of: fault.fingerprint, query)
                    #expect(days.map(\.count).reduce(0, +) == fault.count)
                }
            }
        }
    }

    /// No team sees another's.
    func teams() async throws {
        try await withStore { store in
            let report = Self.report()
            let new = try await store.insert([Self.arrival(report, team: "a"), Self.arrival(report, team: "b")])
            #expect(new == 2)
            #expect(try await store.faults(Self.query(team: "c"), by: .total, limit: 10).faults.isEmpty)
            #expect(try await store.report(report.id, team: "c") == nil)
            #expect(try await store.report(report.id, team: "b") != nil)
        }
    }

    /// Lengths at the ends of 64 bits do no harm.
    func extremes() async throws {
        try await withStore { store in
            let reports = (0..<50).map { _ in
                var report = Self.report(milliseconds: 1)
                report.durationNs = .max
                report.suppressed = .max
                return report
            }
            #expect(try await store.insert(reports.map { try Self.arrival($0) }) == reports.count)
            let fault = try await store.faults(Self.query(), by: .total, limit: 1).faults.first
            #expect((fault?.totalNs ?? 0) > 0)
            #expect((fault?.count ?? 0) > Int64(reports.count))
        }
    }
}
