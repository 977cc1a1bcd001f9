import Foundation
import HTTPTypes
import StallReports
import StallStore
import Testing

@testable import StallCollector

// Pages that compare two releases or times, and flame graphs.

extension PageTests {
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
}
