import Dispatch
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

@Suite("The server's details in a report")
struct StallDetailsTests {
    @Test(
        "A missing answer is a fault until one comes in time; a loss is reported and does not last"
    )
    func mending() {
        let (feed, mayGoOn) = (EventFeed { _ in }, DispatchSemaphore(value: 0))
        let source = DetailsSource { _ in
            mayGoOn.wait()
            return .init()
        }
        feed.send(.fault(.init(.reportsLost)))
        #expect(feed.faults.isEmpty)
        _ = source.details(of: .minimal(), within: .milliseconds(1), tell: feed.send)
        #expect(feed.faults.map(\.code) == [.detailsMissing])
        // Enough for everything that is asked from now on. Nothing is, until the late answer has come.
        for _ in 0..<100 { mayGoOn.signal() }
        waitUntil {
            _ = source.details(of: .minimal(), within: .seconds(60), tell: feed.send)
            return feed.faults.isEmpty
        }
        #expect(feed.faults.isEmpty)
    }

    private func metadata(_ labels: [String: String], _ details: [String: String]) -> [String: String] {
        DetailsSource(labels: labels) { _ in .init(metadata: details) }
            .details(of: .minimal(), within: .seconds(60)) { _ in Issue.record("no answer in a minute") }.metadata
    }

    @Test("Metadata is cut to a report's limits, the stall's own first, at whole characters")
    func bounds() {
        let many = Dictionary(uniqueKeysWithValues: (0..<100).map { ("label\($0)", "x") })
        let own = Dictionary(uniqueKeysWithValues: (0..<10).map { ("own\($0)", "y") })
        let told = metadata(many, own)
        #expect(told.count == DetailsSource.limits.pairs && own.allSatisfy { told[$0.key] == $0.value })

        let long = metadata(["a": String(repeating: "é", count: 2000)], [:])["a"]
        #expect(long == String(repeating: "é", count: DetailsSource.limits.valueBytes / 2))
    }
}
