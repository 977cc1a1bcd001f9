import Foundation
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

// The alerts above the table of faults.

extension PageTests {
    private static func alerts(_ count: Int) -> [Alert] {
        let now = Timestamp.now()
        // The store has them in another order.
        return (0..<count).map { age in
            let began = now.advanced(byNanoseconds: -Int64(age) * 60_000_000_000)
            return Alert(team: "default", rule: "r\(age)", subject: "s\(age)", text: "<t>", beganAt: began)
        }.reversed()
    }

    private static func page(alerts: Int) async throws -> String {
        var text = ""
        try await Samples.withStore { store, _ in
            try await store.change(alerts: Self.alerts(alerts), removing: [])
            let found = Mutex("")
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/")
                found.withLock { $0 = page }
            }
            text = found.withLock { $0 }
        }
        return text
    }

    @Test("The page shows the three newest alerts, a line opens the others, and headings lead to alerts and faults")
    func alerts() async throws {
        let page = try await Self.page(alerts: 5)
        let parts = page.components(separatedBy: "<details>")
        try #require(parts.count == 2, "\(page)")
        #expect(parts[0].contains("<h2>5 alerts</h2>") && parts[1].hasPrefix("<summary>2 more alerts</summary>"))
        let shown = parts.map { $0.matches(of: /<li>r([0-9]+): &lt;t&gt;/).map { String($0.1) } }
        #expect(shown == [["0", "1", "2"], ["3", "4"]], "\(page)")
        #expect(parts[1].firstMatch(of: /(?s)<\/details>\s*<h2>Faults found<\/h2>/) != nil, "\(page)")
        #expect(!page.contains("<script"))
    }

    @Test("Up to three alerts hide nothing, and without alerts there are no headings of them", arguments: [0, 1, 3])
    func fewAlerts(count: Int) async throws {
        let page = try await Self.page(alerts: count)
        #expect(!page.contains("<details>"), "\(page)")
        #expect(page.components(separatedBy: "<li>").count - 1 == count, "\(page)")
        #expect(page.contains("<h2>") == (count > 0), "\(page)")
    }

    @Test("Of more alerts than a page has, the number of the others is a link to all")
    func manyAlerts() async throws {
        let page = try await Self.page(alerts: FaultsPage.AlertList.most + 2)
        #expect(page.contains("<summary>99 more alerts</summary>"), "\(page)")
        #expect(page.contains("<li><a href=\"/api/v1/alerts\">and 2 more alerts</a></li>"), "\(page)")
    }
}
