import Foundation
import StallReading
import StallReports
import StallStore
import Testing

// Run records, what comes page by page, and what is removed.

extension StoreContract {
    /// A run's counts are those of its latest record; its time is that within the range.
    func runs() async throws {
        try await withStore { store in
            let start = Self.now.advanced(byNanoseconds: -7 * 3_600_000_000_000)
            var run = RunRecord(
                startedAt: start,
                updatedAt: start.advanced(byNanoseconds: 6 * 3_600_000_000_000),
                host: .init(name: "web1"),
                service: .init(name: "shop"),
                process: .init(pid: 7),
                monitorVersion: "1"
            )
            run.watched = [.init(label: "main", watchedNs: 3_600_000_000_000)]
            let fault = Self.report().fingerprint
            // On two loops: the fault is the same.
            run.repeated = ["main", "nio"].map { label in
                .init(
                    fingerprint: fault,
                    repeats: .init(
                        count: 3,
                        report: nil,
                        firstAt: start,
                        lastAt: run.updatedAt,
                        totalNs: 900,
                        longestNs: 400
                    ),
                    label: label
                )
            }
            let first = try Arrival(json: run.json(), team: "a", now: Self.now)
            run.updatedAt = run.updatedAt.advanced(byNanoseconds: 1)
            run.repeated = []
            #expect(try await store.insert([first]) == 1)
            var list = try await store.faults(Self.query(), by: .total, limit: 10)
            #expect(list.faults.map(\.count) == [6])
            #expect(list.watchedNs == 3_600_000_000_000)
            let counted = try #require(try await store.faults(Self.query(days: 1), by: .total, limit: 10).faults.first)
            #expect(counted.reports == 0 && counted.hosts == ["web1": 0] && counted.services == ["shop": 0])
            // Evenly, in parts of two hours.
            #expect(counted.trend.counts.suffix(5) == [0, 1, 1, 2, 2])
            #expect(try await store.insert([Arrival(json: run.json(), team: "a", now: Self.now), first]) == 1)
            list = try await store.faults(Self.query(), by: .total, limit: 10)
            #expect(list.faults.isEmpty)
            #expect(list.runs == 1)
        }
    }

    /// A run of a year counts in a range with the whole range.
    func longRun() async throws {
        try await withStore { store in
            let yearNs: Int64 = 400 * 86_400_000_000_000
            let runs = ["web1", "web2"].map { host in
                var run = RunRecord(
                    startedAt: Self.now.advanced(byNanoseconds: -yearNs),
                    updatedAt: Self.now,
                    host: .init(name: host),
                    service: .init(name: "shop"),
                    process: .init(pid: 7),
                    monitorVersion: "1"
                )
                run.watched = ["main", "nio"].map { .init(label: $0, watchedNs: host == "web1" ? yearNs : .max) }
                return run
            }
            _ = try await store.insert(runs.map { try Arrival(json: $0.json(), team: "a", now: Self.now) })
            var query = Self.query(days: 4)
            query.hosts = ["web1"]
            let watchedNs = try await store.faults(query, by: .total, limit: 1).watchedNs
            // Two loops. The parts are not computed with whole numbers.
            #expect(abs(watchedNs - 8 * 86_400_000_000_000) < 1_000_000_000)
            query.hosts = []
            #expect(try await store.faults(query, by: .total, limit: 1).watchedNs > watchedNs)
        }
    }

    /// Reports and run records come page by page, each once, in order, as they were sent.
    func pages() async throws {
        try await withStore { store in
            // Many of one time: then the id decides.
            let reports = (0..<40).map { Self.report(hoursAgo: Double($0 / 9), host: "web\($0 % 2)") }
            let runs = (0..<11).map { index in
                RunRecord(
                    startedAt: Self.now.advanced(byNanoseconds: -7_200_000_000_000),
                    updatedAt: Self.now.advanced(byNanoseconds: -3_600_000_000_000),
                    host: .init(name: "web\(index % 2)"),
                    process: .init(pid: 7),
                    monitorVersion: "1"
                )
            }
            var generator = SeededGenerator.ofThisRun()
            let documents = try reports.map { try $0.json() } + runs.map { try $0.json() }
            _ = try await store.insert(
                try documents.shuffled(using: &generator).map {
                    try Arrival(json: $0, team: "a", now: Self.now)
                }
            )
            for hosts in [[], ["web1"], ["web2"]] {
                var query = Self.query()
                (query.hosts, query.until) = (hosts, Self.now.advanced(byNanoseconds: 1))
                let chosen = reports.filter { hosts.isEmpty || hosts.contains($0.host.name) }.sorted {
                    ($0.startedAt, $0.id.description) < ($1.startedAt, $1.id.description)
                }
                var (found, last): ([[UInt8]], StoredReport.Place?) = ([], nil)
                while case let page = try await store.reports(query, after: last, limit: 4), !page.isEmpty {
                    #expect(page.count <= 4)
                    found += page.map(\.json)
                    last = page.last?.place
                }
                #expect(try found == chosen.map { try $0.json() })
                #expect(try await store.count(query, limit: 1000) == chosen.count)
                #expect(try await store.count(query, limit: 7) == min(7, chosen.count))

                let chosenRuns = runs.filter { hosts.isEmpty || hosts.contains($0.host.name) }
                var (foundRuns, lastRun): ([StoredRun], ULID?) = ([], nil)
                while case let page = try await store.runs(query, after: lastRun, limit: 4), !page.isEmpty {
                    #expect(page.count <= 4)
                    foundRuns += page
                    lastRun = page.last?.id
                }
                #expect(foundRuns.map(\.id.description) == chosenRuns.map(\.id.description).sorted())
                #expect(
                    try Set(foundRuns.map(\.json)) == Set(chosenRuns.map { try $0.json() })
                )
            }
            var earlier = Self.query()
            earlier.until = Self.now.advanced(byNanoseconds: -8_000_000_000_000)
            #expect(try await store.runs(earlier, after: nil, limit: 100).isEmpty)
            #expect(try await store.runs(Self.query(team: "b"), after: nil, limit: 100).isEmpty)
            #expect(try await store.reports(Self.query(team: "b"), after: nil, limit: 100).isEmpty)
        }
    }

    /// Old stalls are removed, and the remaining ones have correct sums.
    func age() async throws {
        try await withStore { store in
            let reports = stride(from: 1.0, through: 100, by: 3).map { Self.report(hoursAgo: $0) }
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            let limit = Self.now.advanced(byNanoseconds: -50 * 3_600_000_000_000)
            let removed = try await store.removeOld(before: limit, maximumBytes: nil)
            // With the precision of an hour.
            let left = try await store.stalls(Self.query(), of: nil, longestFirst: false, limit: 1000)
            #expect(removed + left.count == reports.count)
            #expect(left.allSatisfy { $0.startedAt >= limit.advanced(byNanoseconds: -3_600_000_000_000) })
            #expect(
                reports.filter { $0.startedAt >= limit }.allSatisfy { report in left.contains { $0.id == report.id } }
            )
            let fault = try #require(try await store.fault(reports[0].fingerprint, Self.query()))
            #expect(fault.count == Int64(left.count))
            #expect(fault.hosts == ["web1": Int64(left.count)])
            #expect(try await store.size().stalls == Int64(left.count))
        }
    }

    /// If it is too large the oldest are removed.
    func size() async throws {
        try await withStore { store in
            let reports = (0..<400).map { index in
                var report = Self.report(hoursAgo: Double(index + 1) / 2)
                report.metadata = ["noise": (0..<200).map { _ in UUID().uuidString }.joined()]
                return report
            }
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            let before = try await store.size().bytes
            #expect(try await store.removeOld(before: Timestamp(seconds: 0), maximumBytes: before / 2) > 0)
            #expect(try await store.size().bytes <= before / 2)
            let left = try await store.stalls(Self.query(), of: nil, longestFirst: false, limit: 1000)
            #expect(!left.isEmpty && left.count < reports.count)
            #expect(left.first?.id == reports[0].id)
        }
    }
}
