import Foundation
import HTTPTypes
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

// A fault's page, and what leads to it.

extension PageTests {
    @Test("A fault's page says which of its days, hosts and stalls it does not show")
    func faultLimits() async throws {
        try await Samples.withStore { store, _ in
            // With midnight between two looks at the clock, two of them would be of one day.
            let now = Timestamp.now()
            let reports = (0..<52 as Range<Int64>).map { day in
                var report = Self.report(hoursAgo: day * 24, now: now)
                report.host = .init(name: "web\(day)")
                return report
            }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            var options = CollectorOptions()
            options.keep = .seconds(90 * 86400)
            let notes = [
                "Shown are the last 31 of 52 days with stalls.", "Shown are the first 50 of 52.",
                "Shown are the latest 50 of 52 reports.",
            ]
            try await Client.withServer(store, options) { client in
                let fault = "/faults/\(reports[0].fingerprint.rawValue)"
                let all = try await Self.text(client, fault + "?since=60d")
                for note in notes { #expect(all.contains(note), "\(note)") }
                #expect(try await !Self.text(client, fault + "?since=20d").contains("Shown are"))
            }
        }
    }

    @Test("The error about a fault that has no stall in its page's range names both ends of the range")
    func faultOutOfRange() async throws {
        try await Samples.withStore { store, _ in
            let report = Self.report(hoursAgo: 1)
            _ = try await store.insert([try Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let range = "since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z"
                try await client.execute(uri: "/faults/\(report.fingerprint.rawValue)?\(range)", method: .get) {
                    let text = String(decoding: $0.body, as: UTF8.self)
                    #expect($0.status == .notFound && text.contains("no stall from 2026-01-01T00:00:00"), "\(text)")
                    #expect(text.contains(" to 2026-01-02T00:00:00"), "\(text)")
                }
            }
        }
    }

    @Test("A fault's page shows the stacks of its longest stalls as one tree, with the share of each call")
    func mergedStacks() async throws {
        try await Samples.withStore { store, _ in
            func report(_ callee: String, milliseconds: Int64) -> StallReport {
                var report = Self.report("own()", "1.1", milliseconds: milliseconds)
                report.stacks = [
                    .init(
                        thread: .init(id: 7),
                        capturedAt: report.startedAt,
                        frames: [(callee, false), ("own()", true), ("main", true)].enumerated().map { index, frame in
                            .init(address: Address(UInt64(index)), function: frame.0, own: frame.1)
                        }
                    )
                ]
                return report
            }
            let reports = [report("<read>", milliseconds: 3000), report("write", milliseconds: 1000)]
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/faults/\(reports[0].fingerprint)?since=1d")
                let rows = try Regex(
                    "<td class=\"number soft\">([^<]*)</td><td class=\"([^\"]*)\"><code>([^<]*)</code>",
                    as: (Substring, Substring, Substring, Substring).self
                )
                let lines = page.matches(of: rows).map { "\($0.output.1), \($0.output.2), \($0.output.3)" }
                #expect(
                    lines == [
                        "100.0 %, depth0 own, main", "100.0 %, depth0 own, own()", "75.0 %, depth1, &lt;read&gt;",
                        "25.0 %, depth1, write",
                    ]
                )
                #expect(page.contains("Stacks of 2 stalls by blocked time"))
            }
        }
    }

    @Test("Of a fault with very many stalls its page shows the stacks of the longest of the latest ones, and says so")
    func latestStacks() async throws {
        try await Samples.withStore { store, _ in
            // The earliest is the longest.
            let reports = (0..<1001 as Range<Int64>).map { index in
                var report = Self.report("f()", "1.1", milliseconds: index == 0 ? 9000 : 500)
                report.startedAt = report.startedAt.advanced(byNanoseconds: (index - 2000) * 1_000_000_000)
                report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
                return report
            }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/faults/\(reports[0].fingerprint)?since=1d")
                #expect(page.contains("Stacks of the 20 longest of its latest 1000 stalls by blocked time"))
                #expect(page.contains("Shown are the latest 50 of 1001 reports."))
            }
        }
    }

    @Test("However many pages of faults are opened, few read reports at a time, and all are shown")
    func mergedAtATime() async throws {
        let reading = Mutex((now: 0, most: 0))
        var store = StubStore()
        store.listed = [.sample()]
        store.reporting = {
            reading.withLock {
                $0.now += 1
                $0.most = max($0.most, $0.now)
            }
            try? await Task.sleep(for: .milliseconds(50))
            reading.withLock { $0.now -= 1 }
        }
        try await Client.withServer(store, CollectorOptions()) { client in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<12 {
                    group.addTask { _ = try await Self.text(client, "/faults/v2:0000000000000000") }
                }
                try await group.waitForAll()
            }
        }
        #expect((1...4).contains(reading.withLock { $0.most }))
    }

    @Test("A report's page leads to its fault, also if the stall is older than a month")
    func oldReport() async throws {
        try await Samples.withStore { store, _ in
            let old = Self.report(hoursAgo: 45 * 24)
            _ = try await store.insert([try Arrival(json: old.json(), team: "default")])
            var options = CollectorOptions()
            options.keep = .seconds(90 * 86400)
            try await Client.withServer(store, options) { client in
                let page = try await Self.text(client, "/reports/\(old.id)")
                let link = try #require(page.components(separatedBy: "href=\"/faults/").last).prefix { $0 != "\"" }
                let fault = try await Self.text(client, "/faults/\(link)")
                #expect(fault.contains("1 stall, 500ms together"), "\(link)")
            }
        }
    }

    @Test("An alert leads to its fault, also from a page of a shorter time than the rule's")
    func alerted() async throws {
        try await Samples.withStore { store, _ in
            let earlier = Self.report(hoursAgo: 3)
            _ = try await store.insert([try Arrival(json: earlier.json(), team: "default")])
            let fault = earlier.fingerprint.rawValue
            let alert = Alert(team: "default", rule: "news", subject: fault, text: "new", beganAt: .now())
            try await store.change(alerts: [alert], removing: [])
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/?since=1h")
                let link = try #require(page.components(separatedBy: "href=\"/faults/").last).prefix { $0 != "\"" }
                let detail = try await Self.text(client, "/faults/\(link)")
                #expect(detail.contains("1 stall, 500ms together"), "\(link)")
            }
        }
    }
}
