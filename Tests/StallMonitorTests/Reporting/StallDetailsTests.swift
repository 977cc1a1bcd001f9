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
        _ = source.details(of: .minimal(), tell: feed.send)
        #expect(feed.faults.map(\.code) == [.detailsMissing])
        // Enough for everything that is asked from now on. This test does not concern machines that give no CPU time
        // for a tenth of a second.
        for _ in 0..<100 { mayGoOn.signal() }
        for _ in 0..<50 where !feed.faults.isEmpty { _ = source.details(of: .minimal(), tell: feed.send) }
        #expect(feed.faults.isEmpty)
    }

    private func metadata(_ labels: [String: String], _ details: [String: String]) -> [String: String] {
        let source = DetailsSource(labels: labels) { _ in .init(metadata: details) }
        var found: [String: String] = [:]
        // This test does not concern machines that give no CPU time for a tenth of a second.
        for _ in 0..<50 {
            var isLate = false
            found = source.details(of: .minimal()) { _ in isLate = true }.metadata
            if found.keys.contains(where: { details[$0] != nil }) || !isLate && details.isEmpty { break }
        }
        return found
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
