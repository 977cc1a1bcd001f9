import StallReading
import StallReports
import StallStore
import Testing

extension StoreContract {
    /// A process that died is silent even if another one runs beside it; one that was replaced is not.
    func silence() async throws {
        try await withStore { store in
            let runs = [
                Self.run(updatedMinutesAgo: 50, host: "beside"), Self.run(updatedMinutesAgo: 0, host: "beside"),
                Self.run(updatedMinutesAgo: 50, host: "replaced"),
                Self.run(startedMinutesAgo: 49, updatedMinutesAgo: 0, host: "replaced"),
                Self.run(updatedMinutesAgo: 50, host: "two"), Self.run(updatedMinutesAgo: 45, host: "two"),
                Self.run(startedMinutesAgo: 40, updatedMinutesAgo: 30, state: .terminated, host: "two"),
                Self.run(updatedMinutesAgo: 50, state: .terminated, host: "ended"),
            ]
            _ = try await store.insert(runs.map { try Arrival(json: $0.json(), team: "a", now: Self.now) })
            #expect(try await Self.silent(store) == ["beside", "two"])
            #expect(try await Self.silent(store, team: "b").isEmpty)
        }
    }

    /// The end of a run arrives with an earlier time than what it sent before.
    func clockSetBack() async throws {
        try await withStore { store in
            let running = Self.run(updatedMinutesAgo: 30, host: "web1")
            var ended = running
            (ended.state, ended.updatedAt) = (.stopped, running.updatedAt.advanced(byNanoseconds: -3_600_000_000_000))
            #expect(try await store.insert([Arrival(json: running.json(), team: "a", now: Self.now)]) == 1)
            #expect(try await Self.silent(store) == ["web1"])
            #expect(try await store.insert([Arrival(json: ended.json(), team: "a", now: Self.now)]) == 1)
            for run in [running, ended] {
                #expect(try await store.insert([Arrival(json: run.json(), team: "a", now: Self.now)]) == 0)
            }
            #expect(try await Self.silent(store).isEmpty)
            let kept = try await store.runs(Self.query(), after: nil, limit: 10).map { try RunRecord(json: $0.json) }
            #expect(kept == [ended])
        }
    }

    /// After the clock was set back, the records of a running monitor are not held back until it has caught up; and one that comes
    /// after the end does not make the run running again.
    func clockSetBackWhileRunning() async throws {
        try await withStore { store in
            func insert(_ run: RunRecord) async throws -> Int {
                try await store.insert([Arrival(json: run.json(), team: "a", now: Self.now)])
            }
            let first = Self.run(updatedMinutesAgo: 30, host: "web1")
            var second = first
            second.updatedAt = first.updatedAt.advanced(byNanoseconds: -3_600_000_000_000)
            second.watched[0].watchedNs += 1
            for (run, changes) in [(first, 1), (second, 1), (first, 0), (second, 0)] {
                #expect(try await insert(run) == changes)
            }
            var ended = second
            ended.state = .stopped
            var late = first
            late.updatedAt = Self.now
            for (run, changes) in [(ended, 1), (late, 0)] { #expect(try await insert(run) == changes) }
            #expect(try await Self.silent(store).isEmpty)
            let kept = try await store.runs(Self.query(), after: nil, limit: 10).map { try RunRecord(json: $0.json) }
            #expect(kept == [ended])
        }
    }

    /// The hosts of the runs from which nothing came for 15 minutes.
    private static func silent(_ store: any StallStore, team: String = "a") async throws -> [String] {
        try await store.silentRuns(
            team: team,
            since: now.advanced(byNanoseconds: -86_400_000_000_000),
            before: now.advanced(byNanoseconds: -15 * 60_000_000_000)
        ).map(\.host)
    }

    /// A fault is new for each service separately, and for a release compared with the previous one.
    func news() async throws {
        try await withStore { store in
            let since = Self.now.advanced(byNanoseconds: -60 * 60_000_000_000)
            let reports = [
                Self.report(hoursAgo: 15, function: "f()", service: "bakery"),
                Self.report(hoursAgo: 15, function: "g()", release: "1.1"),
                Self.report(hoursAgo: 13, function: "h()", release: "1.2"),
                // New in the shop, although the bakery had it.
                Self.report(hoursAgo: 0.5, function: "f()", release: "1.2"),
                // The shop had it, but not in its previous release.
                Self.report(hoursAgo: 0.3, function: "g()", release: "1.3"),
                Self.report(hoursAgo: 0.2, function: "h()", release: "1.3"),
                // The first fault of this service is not new, the next one is.
                Self.report(hoursAgo: 0.1, function: "f()", service: "young"),
                Self.report(hoursAgo: 0.05, function: "g()", service: "young"),
            ]
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            func new(_ novelty: Novelty, _ services: [String] = [], limit: Int = 10) async throws -> [String] {
                try await store.newFaults(team: "a", services: services, since: since, novelty: novelty, limit: limit)
                    .map { "\($0.service) \($0.release) \($0.fingerprint)" }
            }
            let (f, g) = (Self.report(function: "f()").fingerprint, Self.report(function: "g()").fingerprint)
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                #expect(try await new(.service) == ["shop  \(f)", "young  \(g)"])
                #expect(try await new(.release) == ["shop 1.2 \(f)", "shop 1.3 \(g)"])
                #expect(try await new(.release, limit: 1) == ["shop 1.2 \(f)"])
                #expect(try await new(.service, ["bakery"]) == [])
            }
        }
    }

    /// One fault was only counted before its first report, another has no report yet.
    func countedNews() async throws {
        try await withStore { store in
            let faults = ["known()", "counted()"].map { Self.report(function: $0).fingerprint }
            var run = Self.run(updatedMinutesAgo: 10, host: "web1")
            run.repeated = zip(faults, [90, 30] as [Int64]).map { fault, minutesAgo in
                let moment = Self.now.advanced(byNanoseconds: -minutesAgo * 60_000_000_000)
                return .init(
                    fingerprint: fault,
                    repeats: .init(
                        count: 1,
                        report: nil,
                        firstAt: moment,
                        lastAt: moment,
                        totalNs: 300_000_000,
                        longestNs: 300_000_000
                    )
                )
            }
            let reports = [
                Self.report(hoursAgo: 1.8, function: "old()"), Self.report(hoursAgo: 0.3, function: "known()"),
            ]
            _ = try await store.insert([Arrival(json: run.json(), team: "a", now: Self.now)])
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            #expect(try await Self.new(store) == [faults[1]])
        }
    }

    /// Two services have one fault, which one of them has had for long, and stalls of loops that are in no list.
    func watchersCounts() async throws {
        try await withStore { store in
            let fault = Self.report().fingerprint
            let moment = Self.now.advanced(byNanoseconds: -30 * 60_000_000_000)
            var run = Self.run(updatedMinutesAgo: 10, host: "web1", service: "stall-monitor")
            run.service?.version = "1.0"
            run.targets = [.init(pid: 8), .init(pid: 9)]
            let counts: [(String?, Int)] = [("redis", 2), ("redis", 3), ("mill", 7), (nil, 11)]
            run.repeated = counts.map { service, count in
                var counted = RunRecord.Repeated(
                    fingerprint: fault,
                    repeats: .init(
                        count: count,
                        report: nil,
                        firstAt: moment,
                        lastAt: moment,
                        totalNs: 300_000_000,
                        longestNs: 300_000_000
                    )
                )
                counted.service = service
                return counted
            }
            // The watcher has a stall of its own: nothing is new in a service of which nothing was known.
            let reports = [
                Self.report(hoursAgo: 5, service: "redis"),
                Self.report(hoursAgo: 5, function: "own()", service: "stall-monitor"),
            ]
            _ = try await store.insert(reports.map { try Self.arrival($0) })
            _ = try await store.insert([Arrival(json: run.json(), team: "a", now: Self.now)])
            var query = Self.query(days: 1)
            let sums = try await store.services(query).services.map { "\($0.name) \($0.count)" }
            #expect(Set(sums) == ["redis 6", "mill 7", " 11", "stall-monitor 1"])
            query.services = ["redis"]
            let redis = try await store.faults(query, by: .total, limit: 10).faults
            #expect(redis.map(\.count) == [6] && redis.map(\.releases) == [["1.2": 1]])
            query.releases = ["1.0"]
            #expect(try await store.faults(query, by: .total, limit: 10).faults.isEmpty)
            (query.services, query.releases) = (["stall-monitor"], [])
            let own = try await store.faults(query, by: .total, limit: 10).faults
            #expect(own.map(\.fingerprint) == [reports[1].fingerprint])
            #expect(try await Self.new(store) == [])
        }
    }

    /// It was the time of the watcher's own service: for a watched one without stalls, nobody had looked.
    func watchersTime() async throws {
        try await withStore { store in
            var watcher = Self.run(startedMinutesAgo: 70, updatedMinutesAgo: 10, host: "web1", service: "stall-monitor")
            watcher.targets = [.init(pid: 8), .init(pid: 9)]
            let times: [(String?, Int64)] = [("redis", 2), ("redis", 3), ("mill", 7), (nil, 11)]
            watcher.watched = times.enumerated().map { index, time in
                var loop = RunRecord.Watched(label: "loop \(index)", watchedNs: time.1 * 60_000_000_000)
                loop.service = time.0
                return loop
            }
            let own = Self.run(startedMinutesAgo: 70, updatedMinutesAgo: 10, host: "web2", service: "redis")
            let records = try [watcher, own].map { try Arrival(json: $0.json(), team: "a", now: Self.now) }
            _ = try await store.insert(records)
            func watched(_ services: [String], hosts: [String] = [], releases: [String] = []) async throws -> [Int64] {
                var query = Self.query(days: 1)
                (query.services, query.hosts, query.releases) = (services, hosts, releases)
                let list = try await store.faults(query, by: .total, limit: 1)
                let records = try await store.runs(query, after: nil, limit: 10)
                #expect(records.count == list.runs)
                return [(list.watchedNs + 500_000_000) / 60_000_000_000, Int64(list.runs)]
            }
            #expect(try await watched([]) == [23, 2])
            #expect(try await watched(["redis"]) == [5, 2])
            #expect(try await watched(["redis"], hosts: ["web1"]) == [5, 1])
            #expect(try await watched(["redis"], hosts: ["web2"]) == [0, 1])
            #expect(try await watched(["mill", "redis"]) == [12, 2])
            #expect(try await watched(["stall-monitor"]) == [0, 1])
            #expect(try await watched(["shop"]) == [0, 0])
            // The releases of watched processes are not known.
            #expect(try await watched(["redis"], releases: ["1.2"]) == [0, 0])
            // In a part of the range, with that part.
            var query = Self.query(days: 1)
            (query.services, query.until) = (["mill"], Self.now.advanced(byNanoseconds: -40 * 60_000_000_000))
            let half = try await store.faults(query, by: .total, limit: 1)
            #expect(abs(half.watchedNs - 210_000_000_000) < 1_000_000_000)
            // A later record replaces the one before; another team has none.
            watcher.watched.removeLast(2)
            watcher.updatedAt = watcher.updatedAt.advanced(byNanoseconds: 1_000_000_000)
            _ = try await store.insert([Arrival(json: watcher.json(), team: "a", now: Self.now)])
            #expect(try await watched(["mill"]) == [0, 0])
            query.team = "b"
            #expect(try await store.faults(query, by: .total, limit: 1).runs == 0)
            let later = Self.now.advanced(byNanoseconds: 7_200_000_000_000)
            #expect(try await store.removeOld(before: later, maximumBytes: nil) == 0)
            #expect(try await watched(["redis"]) == [0, 0])
        }
    }

    /// A stall has another fault at its end than while it lasted.
    func changedNews() async throws {
        try await withStore { store in
            let early = Self.report(hoursAgo: 2, milliseconds: 300, state: .ongoing, function: "early()")
            let reports = [
                early, Self.report(id: early.id, hoursAgo: 2, milliseconds: 900),
                Self.report(hoursAgo: 0.5, function: "early()"),
            ]
            for report in reports.prefix(2) { _ = try await store.insert([Self.arrival(report)]) }
            #expect(try await Self.new(store) == [])
            _ = try await store.insert([Self.arrival(reports[2])])
            #expect(try await Self.new(store) == [early.fingerprint])
            // What has stalls is known.
            for report in reports.prefix(2) { _ = try await store.insert([Self.arrival(report, team: "b")]) }
            var other = early
            (other.id, other.state) = (.make(), .recovered)
            _ = try await store.insert([Self.arrival(other, team: "b"), Self.arrival(reports[2], team: "b")])
            #expect(try await Self.new(store, team: "b") == [])
            // The fault is new, although a stall from before counted as its first one for a while.
            for report in [early, reports[2], reports[1]] {
                _ = try await store.insert([Self.arrival(report, team: "c")])
            }
            #expect(try await Self.new(store, team: "c") == [early.fingerprint])
        }
    }

    /// The faults that are new since an hour ago.
    private static func new(_ store: any StallStore, team: String = "a") async throws -> [Fingerprint] {
        let since = now.advanced(byNanoseconds: -3_600_000_000_000)
        return try await store.newFaults(team: team, services: [], since: since, novelty: .service, limit: 10)
            .map(\.fingerprint)
    }

    /// A new host replaces one other, also if it began a little earlier; a host that had a process before does not, nor one that began
    /// together with the other.
    func silentPods() async throws {
        try await withStore { store in
            let runs = [
                Self.run(updatedMinutesAgo: 50, host: "pod1"), Self.run(updatedMinutesAgo: 50, host: "pod1"),
                Self.run(startedMinutesAgo: 55, updatedMinutesAgo: 0, host: "pod2"),
                Self.run(updatedMinutesAgo: 40, host: "pod3"),
                Self.run(updatedMinutesAgo: 30, state: .stopped, host: "web"),
                Self.run(startedMinutesAgo: 12, updatedMinutesAgo: 0, host: "web"),
                // It does not replace itself.
                Self.run(startedMinutesAgo: 19, updatedMinutesAgo: 18, host: "pod4"),
                Self.run(startedMinutesAgo: 40, updatedMinutesAgo: 35, host: "first", service: "mill"),
                Self.run(startedMinutesAgo: 39, updatedMinutesAgo: 0, host: "second", service: "mill"),
            ]
            _ = try await store.insert(runs.map { try Arrival(json: $0.json(), team: "a", now: Self.now) })
            #expect(try await Self.silent(store) == ["first", "pod4"])
            let other = Self.run(startedMinutesAgo: 10, updatedMinutesAgo: 0, host: "pod1", service: "bakery")
            _ = try await store.insert([Arrival(json: other.json(), team: "a", now: Self.now)])
            #expect(try await Self.silent(store) == ["first", "pod4"])
            let next = Self.run(startedMinutesAgo: 10, updatedMinutesAgo: 0, host: "pod5")
            _ = try await store.insert([Arrival(json: next.json(), team: "a", now: Self.now)])
            #expect(try await Self.silent(store) == ["first"])
        }
    }

    /// Also before it contains anything.
    func check() async throws {
        try await withStore { store in try await store.check() }
    }

    private static func run(
        startedMinutesAgo: Int64 = 120,
        updatedMinutesAgo: Int64,
        state: RunRecord.State = .running,
        host: String,
        service: String = "shop"
    ) -> RunRecord {
        var run = RunRecord(
            startedAt: now.advanced(byNanoseconds: -startedMinutesAgo * 60_000_000_000),
            updatedAt: now.advanced(byNanoseconds: -updatedMinutesAgo * 60_000_000_000),
            host: .init(name: host),
            service: .init(name: service),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        run.state = state
        run.watched = [.init(label: "main", watchedNs: 1)]
        return run
    }
}
