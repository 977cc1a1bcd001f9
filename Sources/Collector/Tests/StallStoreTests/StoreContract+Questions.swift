import Foundation
import StallReading
import StallReports
import StallStore
import Testing

extension StoreContract {
    func filters() async throws {
        try await withStore { store in
            var reports = ["Oven.bake()", "oven.clean()", "100%_sure()", "\u{D4E}x()", "other()"].map {
                Self.report(function: $0)
            }
            reports[1].cause.verdict = .deadlock
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            let all = try await store.stalls(Self.query(), of: nil, longestFirst: false, limit: 10)
            func found(_ change: (inout StallQuery) -> Void) async throws -> Set<Fingerprint> {
                var query = Self.query()
                change(&query)
                let stalls = try await store.stalls(query, of: nil, longestFirst: false, limit: 10)
                #expect(all.filter { query.selects($0) } == stalls)
                return Set(try await store.faults(query, by: .total, limit: 10).faults.map(\.fingerprint))
            }
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                let names = reports.map(\.fingerprint)
                #expect(try await found { $0.text = "oven" } == [names[0], names[1]])
                #expect(try await found { $0.text = "%" } == [names[2]])
                #expect(try await found { $0.text = "_" } == [names[2]])
                // One character, with a letter that joins with what follows it.
                #expect(try await found { $0.text = "\u{D4E}" } == [names[3]])
                #expect(try await found { $0.text = "\u{D4E}%" } == [])
                #expect(try await found { $0.text = "\\" } == [])
                #expect(try await found { $0.text = "" } == Set(names))
                #expect(try await found { $0.verdicts = ["deadlock"] } == [names[1]])
                #expect(try await found { $0.verdicts = ["deadlock", "on_cpu"] } == Set(names))
                #expect(try await found { $0.verdicts = ["none"] } == [])
                var query = Self.query()
                query.verdicts = ["deadlock"]
                #expect(try await store.count(query, limit: 10) == 1)
                #expect(
                    try await store.stalls(query, of: nil, longestFirst: false, limit: 10).map(\.id) == [reports[1].id]
                )
                (query.verdicts, query.text) = ([], "_Sure")
                #expect(try await store.count(query, limit: 10) == 1)
                #expect(
                    try await store.stalls(query, of: nil, longestFirst: false, limit: 10).map(\.id) == [reports[2].id]
                )
                #expect(try await store.reports(query, after: nil, limit: 10).map(\.place.id) == [reports[2].id])
            }
        }
    }

    func orders() async throws {
        try await withStore { store in
            // Each fault is the first in one order.
            let many = (0..<6).map { Self.report(hoursAgo: 20 + Double($0), milliseconds: 300, function: "many()") }
            let worst = [Self.report(hoursAgo: 30, milliseconds: 1500, function: "worst()")]
            let total = (0..<2).map { Self.report(hoursAgo: 40 + Double($0), milliseconds: 1400, function: "total()") }
            let last = [Self.report(hoursAgo: 0.5, milliseconds: 260, function: "last()")]
            _ = try await store.insert((many + worst + total + last).map { try Self.arrival($0) })
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                let all = try await store.faults(Self.query(), by: .total, limit: 10)
                #expect(!all.isPartial)
                for (order, first) in [FaultOrder.total: total, .count: many, .worst: worst, .last: last] {
                    let faults = try await store.faults(Self.query(), by: order, limit: 10).faults
                    #expect(faults.first?.fingerprint == first[0].fingerprint)
                    #expect(faults == all.faults.sorted { order.isBefore($0, $1) })
                    #expect(try await store.faults(Self.query(), by: order, limit: 2).faults == Array(faults.prefix(2)))
                }
            }
        }
    }

    func shortTrend() async throws {
        try await withStore { store in
            // Every five minutes, in 150 minutes with one whole hour.
            let even = (0..<30).map { Self.report(hoursAgo: Double(1 + 5 * $0) / 60) }
            // Its end is beyond its hour, which has no other of its fault.
            let long = Self.report(hoursAgo: 37 / 60, milliseconds: 20 * 60_000, function: "long()")
            _ = try await store.insert((even + [long]).map { try Self.arrival($0) })
            var query = Self.query()
            query.since = Self.now.advanced(byNanoseconds: -150 * 60_000_000_000)
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                let faults = try await store.faults(query, by: .count, limit: 10).faults
                let trend = try #require(faults.first { $0.fingerprint == even[0].fingerprint }?.trend)
                #expect(trend.counts.reduce(0, +) == 30 && trend.direction == .steady, "\(trend.counts)")
                #expect(trend.counts.allSatisfy { (1...4).contains($0) }, "\(trend.counts)")
                let single = try #require(faults.first { $0.fingerprint == long.fingerprint }?.trend)
                #expect(single.counts == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], "\(single.counts)")
            }
        }
    }

    func manyFaults() async throws {
        try await withStore { store in
            let reports = (0..<1001).map { Self.report(function: "function\($0)()", host: "web\($0)") }
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                let faults = try await store.faults(Self.query(), by: .total, limit: 1000).faults
                #expect(Set(faults.map(\.fingerprint)).count == 1000)
                let hosts = Dictionary(reports.map { ($0.fingerprint, [$0.host.name: 1 as Int64]) }) { first, _ in first
                }
                #expect(faults.allSatisfy { $0.hosts == hosts[$0.fingerprint] })
            }
        }
    }

    func services() async throws {
        try await withStore { store in
            let reports =
                (0..<300).map { Self.report(milliseconds: 300, function: "f\($0)()", service: "service\($0)") } + [
                    Self.report(milliseconds: 900, service: ""), Self.report(milliseconds: 500, service: "service7"),
                ]
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                let list = try await store.services(Self.query())
                #expect(!list.isPartial && list.services.count == 301)
                let first = [("", 1, 900), ("service7", 2, 800)] as [(String, Int64, Int64)]
                #expect(
                    list.services.prefix(2)
                        == first.map { ServiceSum(name: $0.0, count: $0.1, totalNs: $0.2 * 1_000_000) }[...]
                )
                var query = Self.query()
                query.services = ["service7", "none"]
                #expect(try await store.services(query).services == [list.services[1]])
                #expect(try await store.services(Self.query(team: "b")).services.isEmpty)
            }
        }
    }

    func choices() async throws {
        try await withStore { store in
            let reports = [("a", "1", "web1"), ("b", "2", "web2"), ("b", "2", "web3"), ("b", "3", "web3")].map {
                Self.report(host: $0.2, service: $0.0, release: $0.1)
            }
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                var query = Self.query()
                // A filter does not remove choices.
                query.services = ["a"]
                let choices = try await store.choices(query)
                #expect(choices.services == ["b", "a"])
                #expect(choices.releases == ["2", "1", "3"])
                #expect(choices.hosts == ["web3", "web1", "web2"])
                #expect(choices.verdicts == ["on_cpu"])
                #expect(try await store.choices(Self.query(team: "b")) == Choices())
            }
        }
    }

    func lists() async throws {
        try await withStore { store in
            // Many of one length and time: then the id decides.
            let reports = (0..<120).map { index in
                Self.report(
                    hoursAgo: Double(index % 7) * 20 + 0.1,
                    milliseconds: 300 + Int64(index % 5) * 100,
                    function: "function\(index % 3)()"
                )
            }
            var generator = SeededGenerator.ofThisRun()
            _ = try await store.insert(reports.shuffled(using: &generator).map { try Self.arrival($0) })
            for fingerprint in [nil, reports[1].fingerprint] {
                let chosen = reports.filter { fingerprint == nil || $0.fingerprint == fingerprint }
                let longest = chosen.sorted { ($1.durationNs, $0.id.description) < ($0.durationNs, $1.id.description) }
                let latest = chosen.sorted { ($0.startedAt, $0.id.description) > ($1.startedAt, $1.id.description) }
                for limit in [0, 1, 17, 1000] {
                    var stalls = try await store.stalls(Self.query(), of: fingerprint, longestFirst: true, limit: limit)
                    #expect(stalls.map(\.id) == longest.prefix(limit).map(\.id))
                    stalls = try await store.stalls(Self.query(), of: fingerprint, longestFirst: false, limit: limit)
                    #expect(stalls.map(\.id) == latest.prefix(limit).map(\.id))
                }
                for limit in [7, 120] {
                    var pages: [StoredStall] = []
                    while true {
                        let page = try await store.stalls(
                            Self.query(),
                            of: fingerprint,
                            before: pages.last?.place,
                            longestFirst: false,
                            limit: limit
                        )
                        pages += page
                        guard page.count == limit, pages.count <= latest.count else { break }
                    }
                    #expect(pages.map(\.id) == latest.map(\.id))
                }
                let place = StoredReport.Place(startedAt: latest[9].startedAt, id: latest[9].id)
                let before = try await store.stalls(
                    Self.query(),
                    of: fingerprint,
                    before: place,
                    longestFirst: true,
                    limit: 1000
                )
                #expect(before.map(\.id) == longest.filter { !latest.prefix(10).contains($0) }.map(\.id))
            }
        }
    }

    /// Documents are large when packed, or only when unpacked.
    func largePages() async throws {
        try await withStore { store in
            let reports = (0..<12).map { index in
                var report = Self.report(hoursAgo: 13 - Double(index))
                let noise = (0..<27_000).map { _ in UUID().uuidString }.joined()
                report.metadata = ["noise": index < 6 ? noise : String(repeating: "x", count: noise.count)]
                return report
            }
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            var (found, last): ([ULID], StoredReport.Place?) = ([], nil)
            while case let page = try await store.reports(Self.query(), after: last, limit: 100), !page.isEmpty {
                #expect(page.map(\.json.count).reduce(0, +) < 6 << 20)
                found += page.map(\.place.id)
                last = page.last?.place
            }
            #expect(found == reports.map(\.id))
        }
    }

    func feed() async throws {
        try await withStore { store in
            let start = try await store.lastPlace()
            let ongoing = Self.report(milliseconds: 300, state: .ongoing)
            let reports = [ongoing] + (0..<9).map { Self.report(hoursAgo: Double($0) * 9 + 1) }
            for report in reports.prefix(5) { _ = try await store.insert([Self.arrival(report)]) }
            _ = try await store.insert(reports.dropFirst(5).map { try Self.arrival($0) })
            // An ended stall is at the end. It may be in its old place as well.
            _ = try await store.insert([Self.arrival(Self.report(id: ongoing.id, milliseconds: 900))])
            let all = try await arrivals(store, after: start) { found in
                found.count >= reports.count && found.last?.stall.id == ongoing.id
            }
            #expect(all.map(\.stall.id).filter { $0 != ongoing.id } == reports.dropFirst().map(\.id))
            #expect(all.map(\.place) == all.map(\.place).sorted())
            #expect(all.filter { $0.stall.id == ongoing.id }.allSatisfy { $0.stall.durationNs == 900_000_000 })
            let end = try await store.arrivals(team: "a", after: all[all.count - 2].place, limit: 4)
            #expect(end.map(\.stall.id) == [ongoing.id])
            let rest = try await store.arrivals(team: "a", after: all[3].place, limit: 4)
            #expect(rest.map(\.stall.id) == all[4..<8].map(\.stall.id))
            #expect(try await store.arrivals(team: "b", after: start, limit: 10).isEmpty)
            #expect(try await store.lastPlace() >= all[all.count - 1].place)
            #expect(try await store.arrivals(team: "a", after: store.lastPlace(), limit: 10).isEmpty)
        }
    }

    /// A store may hold them back until it knows that no earlier one can follow.
    private func arrivals(
        _ store: any StallStore,
        after place: Int64,
        until isWhole: ([(place: Int64, stall: StoredStall)]) -> Bool
    ) async throws -> [(place: Int64, stall: StoredStall)] {
        let end = ContinuousClock.now + .seconds(30)
        while true {
            let found = try await store.arrivals(team: "a", after: place, limit: 100)
            if isWhole(found) || ContinuousClock.now > end { return found }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    func hostile() async throws {
        try await withStore { store in
            let names = [
                "'); DROP TABLE stall; --", "\\", "\\'", "a\\'b", "' OR 1=1 --", "\\N",
                "Code: 1, e.displayText() = DB::Exception", "{x:1}", "%s%n",
                "\u{1F525}'\u{301}", "a''b", "\"", "`", "/*", ".", "$1", "?",
            ]
            let reports = names.map { Self.report(function: $0, host: $0, service: $0, release: $0) }
            for team in ["a", "it's"] { _ = try await store.insert(reports.map { try Self.arrival($0, team: team) }) }
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                for (name, report) in zip(names, reports) {
                    var query = Self.query(team: "it's")
                    (query.services, query.releases, query.hosts, query.text) = ([name], [name], [name], name)
                    let faults = try await store.faults(query, by: .total, limit: 10).faults
                    #expect(faults.map(\.fingerprint) == [report.fingerprint])
                    #expect(faults.map(\.hosts) == [[name: 1]])
                    let stalls = try await store.stalls(query, of: report.fingerprint, longestFirst: true, limit: 10)
                    #expect(stalls.map(\.id) == [report.id])
                    #expect(stalls.map(\.host) == [name])
                    #expect(try await store.count(query, limit: 10) == 1)
                }
                #expect(try await Set(store.choices(Self.query()).hosts) == Set(names))
            }
        }
    }
}
