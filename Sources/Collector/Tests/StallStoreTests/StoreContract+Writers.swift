import StallReading
import StallReports
import StallStore
import Testing

extension StoreContract {
    func overflow() async throws {
        try await withStore { store in
            // Each is cut to a year; 292 of them exceed 64 bits.
            let reports = (0..<700).map { index in
                var report = Self.report(hoursAgo: index < 350 ? 1 : 2, milliseconds: 1)
                report.durationNs = .max
                return report
            }
            #expect(try await store.insert(reports.map { try Self.arrival($0) }) == reports.count)
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(store) }
                let fault = try await store.faults(Self.query(), by: .total, limit: 1).faults.first
                #expect(fault?.totalNs == .max)
                #expect(fault?.reports == 700)
                let days = try await store.days(of: reports[0].fingerprint, Self.query())
                #expect(days.map(\.totalNs) == [.max])
            }
        }
    }

    func alerts() async throws {
        try await withStore { store in
            var alerts = (0..<3).map { index in
                Alert(team: "a", rule: "rule '\(index)'", subject: "v1:0\t\\\n", text: "line\nline", beganAt: Self.now)
            }
            try await store.change(alerts: alerts, removing: [])
            #expect(try await store.alerts() == alerts)
            alerts[1].endedAt = Self.now.advanced(byNanoseconds: 5)
            (alerts[1].toldBegin, alerts[1].toldEnd) = (["hook 1", "mail"], ["mail"])
            try await store.change(alerts: [alerts[1]], removing: [alerts[0]])
            #expect(try await store.alerts() == [alerts[1], alerts[2]])
            // Removed and begun again.
            try await store.change(alerts: [alerts[2], alerts[0]], removing: [alerts[2]])
            #expect(try await store.alerts() == alerts)
            try await store.change(alerts: [], removing: [])
            try await store.change(alerts: [], removing: alerts)
            #expect(try await store.alerts().isEmpty)
        }
    }

    /// As a sender does, which sends again what a store did not take. A store waits ten seconds for another one, which has the file for
    /// longer where the disk is slow.
    private static func send(_ arrivals: [Arrival], to store: any StallStore) async throws {
        for _ in 0..<10 {
            let begun = ContinuousClock.now
            do {
                _ = try await store.insert(arrivals)
                return
            } catch {
                guard begun.duration(to: .now) >= .seconds(9) else { throw error }
            }
        }
        _ = try await store.insert(arrivals)
    }

    func race() async throws {
        try await store.withStores(2) { stores in
            let reports = (0..<200).map {
                Self.report(hoursAgo: Double($0 % 50) + 0.5, function: "function\($0 % 3)()")
            }
            let ongoing = reports.map { report in
                var report = report
                (report.state, report.endedAt, report.durationNs) = (.ongoing, nil, 1_000_000)
                return report
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for store in stores {
                    for part in [ongoing, reports, ongoing] {
                        group.addTask {
                            for start in stride(from: 0, to: part.count, by: 50) {
                                try await Self.send(part[start..<start + 50].map { try Self.arrival($0) }, to: store)
                            }
                        }
                    }
                }
                try await group.waitForAll()
            }
            for isSettled in [false, true] {
                if isSettled { try await self.store.settle(stores[0]) }
                let list = try await stores[1].faults(Self.query(), by: .total, limit: 10)
                #expect(list.faults.map(\.count).reduce(0, +) == 200)
                #expect(list.faults.map(\.totalNs).reduce(0, +) == reports.map(\.durationNs).reduce(0, +))
                #expect(try await stores[1].count(Self.query(), limit: 1000) == 200)
                let stalls = try await stores[0].stalls(Self.query(), of: nil, longestFirst: false, limit: 1000)
                #expect(stalls.count == 200 && Set(stalls.map(\.id)).count == 200)
                #expect(stalls.count(where: \.isOver) == 200)
                let pages = try await stores[0].reports(Self.query(), after: nil, limit: 1000)
                let sent = try Set(reports.map { try $0.json() })
                #expect(Set(pages.map(\.json)) == sent)
                #expect(pages.count == 200)
            }
        }
    }
}
