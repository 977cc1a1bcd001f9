import Foundation
import HTTPTypes
import StallExport
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

@Suite("Pages")
struct PageTests {
    private static func report(_ function: String, _ release: String, milliseconds: Int64 = 500) -> StallReport {
        var report = Samples.report(function)
        report.service = .init(name: "shop", version: release)
        report.durationNs = milliseconds * 1_000_000
        report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
        return report
    }

    private static func report(_ function: String? = nil, hoursAgo hours: Int64, now: Timestamp = .now())
        -> StallReport
    {
        var report = function.map { Samples.report($0) } ?? Samples.report()
        report.startedAt = now.advanced(byNanoseconds: -hours * 3_600_000_000_000)
        report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
        return report
    }

    private static func text(_ client: Client, _ uri: String) async throws -> String {
        try await client.execute(uri: uri, method: .get) {
            #expect($0.status == .ok, "\(uri)")
            return String(decoding: $0.body, as: UTF8.self)
        }
    }

    @Test("Two releases are compared: new, increased, decreased and gone, the greatest increase first")
    func compare() async throws {
        try await Samples.withStore { store, _ in
            let reports = [
                Self.report("gone()", "1.1"), Self.report("less()", "1.1", milliseconds: 2000),
                Self.report("less()", "1.2", milliseconds: 300), Self.report("more()", "1.1", milliseconds: 300),
                Self.report("more()", "1.2", milliseconds: 4000), Self.report("<new>()", "1.2", milliseconds: 600),
                Self.report("similar()", "1.1"), Self.report("similar()", "1.2"), Self.report("other()", "1.3"),
            ]
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/compare?service=shop&before=1.1&after=1.2")
                #expect(page.contains("1.1 → 1.2: 1 new, 1 more, 1 similar, 1 less, 1 gone."))
                let order = ["more()", "&lt;new&gt;()", "similar()", "gone()", "less()"]
                let places = order.map { page.range(of: "<code>\($0)</code>")?.lowerBound }
                #expect(!places.contains(nil))
                #expect(places.compactMap(\.self) == places.compactMap(\.self).sorted())
                #expect(!page.contains("other()") && !page.contains("<new>"))
                // Only one was selected.
                for uri in ["/compare", "/compare?before=1.1", "/compare?after=1.2&before="] {
                    let page = try await Self.text(client, uri)
                    #expect(
                        page.contains("Choose two releases, or two times.") && page.contains("<option value=\"1.3\">"),
                        "\(uri)"
                    )
                }
            }
        }
    }

    @Test("Two times are compared; a time begins where the address says, and ends where the later one begins")
    func compareTimes() async throws {
        try await Samples.withStore { store, _ in
            let reports = [Self.report("old()", hoursAgo: 30), Self.report("new()", hoursAgo: 1)]
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/compare?since=12h&before-since=48h")
                #expect(page.contains(": 1 new, 0 more, 0 similar, 0 less, 1 gone."))
                // The page of a fault of the earlier time shows that time.
                let link = try #require(page.components(separatedBy: "href=\"/faults/").dropFirst(3).first)
                #expect(link.hasPrefix("\(reports[0].fingerprint.rawValue)?since=48h".replacing(":", with: "%3A")))
                let later = try await Self.text(client, "/compare?since=12h&before-since=20h&before-until=13h")
                #expect(later.contains(": 1 new, 0 more, 0 similar, 0 less, 0 gone."))
                for uri in [
                    "/compare?before-until=1h", "/compare?before-since=1h&before-until=2h", "/compare?before-since=x",
                ] {
                    let status = try await client.execute(uri: uri, method: .get) { $0.status }
                    #expect(status == .badRequest, "\(uri)")
                }
            }
        }
    }

    /// The data of a flame graph's page.
    private struct Graph: Decodable {
        var graph: Box
        var sides: Sides?
        var stalls: [[String]]
        struct Box: Decodable {
            var t: Int64
            var b: Int64?
            var c: [Box]?
            var n: String
        }
        struct Sides: Decodable { var before: String, after: String, rate: Bool }
    }

    @Test("The difference of two releases is a flame graph of a fault or of all, with the whole time of both sides")
    func flameDifference() async throws {
        try await Samples.withStore { store, _ in
            let more = QuestionRoutes.exportedStalls + 1
            let reports =
                [Self.report("f()", "1.1", milliseconds: 2000), Self.report("g()", "1.2", milliseconds: 700)]
                + (0..<more).map { _ in Self.report("f()", "1.2", milliseconds: 300) }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                func graph(_ uri: String) async throws -> Graph {
                    let page = try await Self.text(client, uri)
                    let data = page.components(separatedBy: "id=\"data\">")[1].components(separatedBy: "</script>")[0]
                    #expect(page.contains(QuestionRoutes.truncation) && page.contains("value=\"1.1\" selected"))
                    return try JSONDecoder().decode(Graph.self, from: Data(data.utf8))
                }
                let sides = "?since=1d&before=1.1&after=1.2"
                let one = try await graph("/faults/\(reports[0].fingerprint)/flame\(sides)")
                // Not all of the later stalls are in it, but all of their time.
                #expect(one.graph.b == 2_000_000_000 && one.graph.t == Int64(more) * 300_000_000)
                #expect(one.sides?.before == "1.1" && one.sides?.after == "1.2" && one.sides?.rate == false)
                #expect(one.stalls.map(\.first) == ["f()"])
                let all = try await graph("/flame\(sides)")
                #expect(all.graph.b == 2_000_000_000 && all.graph.t == Int64(more) * 300_000_000 + 700_000_000)
                #expect(all.stalls.map(\.first) == ["f()", "g()"])
                let page = try await Self.text(client, "/compare\(sides)")
                for link in ["/flame", "/faults/\(reports[0].fingerprint)/flame".replacing(":", with: "%3A")] {
                    #expect(page.contains("<a href=\"\(link)\(sides.replacing("&", with: "&amp;"))\">"), "\(link)")
                }
            }
        }
    }

    @Test("The start page leads to the flame graph of what its filters select")
    func flameSelection() async throws {
        try await Samples.withStore { store, _ in
            let reports = [Self.report("f<()", "1.1"), Self.report("g()", "1.2")]
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                let list = try await Self.text(client, "/?since=1d&text=F%3C")
                let link = try #require(list.components(separatedBy: "href=\"/flame?").last).prefix { $0 != "\"" }
                let page = try await Self.text(client, "/flame?\(link)".replacing("&amp;", with: "&"))
                let data = page.components(separatedBy: "id=\"data\">")[1].components(separatedBy: "</script>")[0]
                #expect(data.contains("f\\u003c()") && !data.contains("g()"))
            }
        }
    }

    @Test("A host's page has a line for each of its loops, with a bar for each stall; a fault's page leads there")
    func timeline() async throws {
        try await Samples.withStore { store, _ in
            var reports = (0..<4).map { _ in Samples.report() }
            for (index, label) in ["<main>", "<main>", "pool", "pool"].enumerated() {
                reports[index].watched = .init(label: label)
                reports[index].host = .init(name: index < 3 ? "web&1" : "web2")
            }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { [reports] client in
                let start = try await Self.text(client, "/timeline")
                #expect(start.contains("Choose a host.") && start.contains("<option value=\"web2\">"))
                let fault = try await Self.text(client, "/faults/\(reports[0].fingerprint)?since=1d")
                let link = "/timeline?since=1d&amp;host=web%261"
                #expect(fault.contains("<a href=\"\(link)\">web&amp;1</a>"))
                let page = try await Self.text(client, link.replacing("&amp;", with: "&"))
                // A picture also has a line for the whole time.
                let pictures = page.components(separatedBy: "<svg").dropFirst()
                #expect(pictures.map { $0.components(separatedBy: "<rect").count - 1 } == [3, 2])
                #expect(page.contains("<td>&lt;main&gt;<br>") && !page.contains("<main>"))
                for report in reports {
                    #expect(page.contains("/reports/\(report.id)") == (report.host.name == "web&1"))
                }
                #expect(try await Self.text(client, "/timeline?host=web3").contains("No stalls."))
            }
        }
    }

    @Test("What could be markup is escaped also where it is part of another character")
    func escapes() async throws {
        try await Samples.withStore { store, _ in
            // A letter that joins with what follows it, and an accent.
            let report = Self.report("\u{D4E}</script><b>", "\"\u{301} selected")
            _ = try await store.insert([try Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let list = try await Self.text(client, "/?text=%22%CC%81%20onfocus=x")
                #expect(list.contains("name=\"text\" value=\"&quot;\u{301} onfocus=x\">"))
                #expect(list.contains("<option value=\"&quot;\u{301} selected\">"))
                for path in ["/?since=1d", "/live", "/reports/\(report.id)", "/faults/\(report.fingerprint)/flame"] {
                    let page = try await Self.text(client, path)
                    #expect(page.contains("\u{D4E}&lt;/script&gt;&lt;b&gt;"), "\(path)")
                    #expect(Data(page.utf8).range(of: Data("\u{D4E}<".utf8)) == nil, "\(path)")
                }
            }
        }
    }

    @Test("A page that does not show all faults says so, and one of a past time says when that ended")
    func limits() async throws {
        try await Samples.withStore { store, _ in
            let reports = ["f()", "g()"].map { Self.report($0, "1.1") }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                #expect(try await Self.text(client, "/?limit=1").contains("Shown are the first 1."))
                #expect(try await !Self.text(client, "/?limit=3").contains("Shown are the first"))
                let fault = "/faults/\(reports[0].fingerprint.rawValue)"
                #expect(try await Self.text(client, fault).contains(", since 20"))
                let ended = try await Self.text(client, fault + "?until=0s")
                #expect(ended.contains(", from 20") && ended.contains(" to 20"))
            }
        }
    }

    @Test("The forms of a page of a past time have the time's end, which can be changed or removed")
    func pastForms() async throws {
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                for page in ["/", "/timeline"] {
                    let until = "2026-01-02T03:04:05Z"
                    let past = try await Self.text(client, "\(page)?since=2026-01-01T00:00:00Z&until=\(until)")
                    #expect(past.contains("<input name=\"until\" value=\"\(until)\""), "\(page)")
                    for query in ["", "?since=1d&until="] {
                        #expect(try await !Self.text(client, page + query).contains("name=\"until\""), "\(page)")
                    }
                }
            }
        }
    }

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

    @Test("A fault's page links to every export of its stalls")
    func exports() async throws {
        try await Samples.withStore { store, _ in
            let report = Samples.report()
            _ = try await store.insert([try Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/faults/\(report.fingerprint)?since=1d")
                let links = page.matches(
                    of: try Regex("href=\"(/api/v1/faults/[^\"]*/export/[^\"]*)\"", as: (Substring, Substring).self)
                )
                // All except those made from run records.
                #expect(links.count == ExportFormat.allCases.count - 2)
                for link in links {
                    let uri = link.output.1.replacing("&amp;", with: "&")
                    let answer = try await client.execute(uri: String(uri), method: .get) { $0 }
                    #expect(answer.status == .ok && !answer.body.isEmpty, "\(uri)")
                }
            }
        }
    }

    @Test("An export and a flame graph that do not contain all stalls say so")
    func truncation() async throws {
        try await Samples.withStore { store, _ in
            let (all, more) = (QuestionRoutes.exportedStalls, Samples.report("more()"))
            let reports = (0..<all).map { _ in Samples.report() } + [more]
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            let fault = reports[0].fingerprint
            try await Client.withServer(store, CollectorOptions()) { client in
                func export(_ fault: Fingerprint, _ format: String) async throws -> (isTruncated: Bool, text: String) {
                    let uri = "/api/v1/faults/\(fault)/export/\(format)"
                    return try await client.execute(uri: uri, method: .get) { answer in
                        #expect(answer.status == .ok, "\(uri)")
                        let isTruncated = answer.headers[HTTPField.Name("Stall-Truncated")!] == "true"
                        return (isTruncated, String(decoding: answer.body, as: UTF8.self))
                    }
                }
                for isOneMore in [false, true] {
                    if isOneMore {
                        _ = try await store.insert([Arrival(json: Samples.report().json(), team: "default")])
                    }
                    let table = try await export(fault, "csv")
                    #expect(table.isTruncated == isOneMore)
                    // With its header.
                    #expect(table.text.split(separator: "\r\n").count == all + 1)
                    for format in ["html", "svg"] {
                        let answer = try await export(fault, format)
                        #expect(answer.isTruncated == isOneMore, "\(format)")
                        #expect(answer.text.contains(QuestionRoutes.truncation) == isOneMore, "\(format)")
                    }
                    let flame = try await Self.text(client, "/faults/\(fault)/flame")
                    #expect(flame.contains(QuestionRoutes.truncation) == isOneMore)
                    #expect(try await export(more.fingerprint, "csv").isTruncated == false)
                }
                #expect(try await Self.text(client, "/faults/\(fault)").contains(QuestionRoutes.exportLimits))
            }
        }
    }

    @Test("Reports are exported up to a size, and it is told whether these were all")
    func exportedBytes() async throws {
        try await Samples.withStore { store, _ in
            let reports = (0..<3).map { _ in Samples.report() }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            let query = StallQuery(team: "default", since: Timestamp(seconds: 0), until: .now())
            let stalls = try await store.exportedStalls(of: reports[0].fingerprint, query)
            for (bytes, count) in [(1, 1), (1 << 20, 3)] {
                var passed = 0
                let isWhole = try await store.eachReport(of: stalls, team: "default", bytes: bytes) { _ in passed += 1 }
                #expect(passed == count && isWhole == (count == stalls.count))
            }
        }
    }

    @Test("A browser asks each time whether it has the present files of pages, and is sent those it has not")
    func assets() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            var tags: Set<String> = []
            for name in ["style.css", "flame.css", "flame.js", "icon.svg", "live.js"] {
                func get(_ tag: String?) async throws -> Client.Answer {
                    var headers: HTTPFields = [:]
                    headers[.ifNoneMatch] = tag
                    return try await client.execute(uri: "/assets/\(name)", method: .get, headers: headers) { $0 }
                }
                let first = try await get(nil)
                let tag = try #require(first.headers[.eTag])
                #expect(first.headers[.cacheControl] == "no-cache", "\(name)")
                let isNew = tags.insert(tag).inserted
                #expect(tag.hasPrefix("\"") && tag.hasSuffix("\"") && isNew, "\(name)")
                let again = try await get(tag)
                #expect(again.status == .notModified && again.body.isEmpty && again.headers[.eTag] == tag, "\(name)")
                let other = try await get("\"of an earlier version\"")
                #expect(other.status == .ok && other.body == first.body && !other.body.isEmpty, "\(name)")
            }
        }
    }
}
