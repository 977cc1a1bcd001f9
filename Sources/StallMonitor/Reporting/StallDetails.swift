public import StallReports
import Synchronization

/// What the server adds to a report when a stall is detected: which request or job it was, of which trace.
public struct StallDetails: Hashable, Sendable {
    /// Besides ``StallMonitor/Configuration-swift.struct/metadata``; a key that is there, too, takes its place.
    public var metadata: [String: String]
    /// The trace that the stalled work belongs to.
    public var trace: StallReport.Trace?

    /// Nothing but what is given.
    public init(metadata: [String: String] = [:], trace: StallReport.Trace? = nil) {
        (self.metadata, self.trace) = (metadata, trace)
    }
}

/// Asks the server for details of a stall, for a tenth of a second at most: what the server does then may wait for the very lock that the
/// stall is about.
final class DetailsSource: Sendable {
    typealias Question = @Sendable (StallReport) -> StallDetails

    private let labels: [String: String]
    private let ask: Question?
    private let lookup = PatientLookup()
    private let isTold = Atomic(false)

    static let patience: Duration = .milliseconds(100)
    /// What a report takes of the server's words. The rest is cut off.
    static let limits = (pairs: 64, keyBytes: 128, valueBytes: 1024)

    init(labels: [String: String] = [:], ask: Question? = nil) {
        (self.labels, self.ask) = (Self.bounded(labels), ask)
    }

    /// What the server says of a stall that was just detected, with the labels that all reports have.
    ///
    /// - Parameter tell: told once when there is no answer in time, and once when there is again.
    func details(of report: StallReport, tell: (StallEvent) -> Void) -> StallDetails {
        guard let ask else { return StallDetails(metadata: labels) }
        guard let details = lookup.ask(within: Self.patience, { ask(report) }) else {
            if !isTold.exchange(true, ordering: .relaxed) { tell(.fault(.init(.detailsMissing))) }
            return StallDetails(metadata: labels)
        }
        if isTold.exchange(false, ordering: .relaxed) { tell(.mended(.init(.detailsMissing))) }
        // Its own come first: they say more of this stall than the labels do.
        let own = Self.bounded(details.metadata)
        let room = max(0, Self.limits.pairs - own.count)
        let others = labels.filter { own[$0.key] == nil }.sorted { $0.key < $1.key }.prefix(room)
        return StallDetails(
            metadata: own.merging(others.map { ($0.key, $0.value) }) { own, _ in own },
            trace: details.trace
        )
    }

    private static func bounded(_ pairs: [String: String]) -> [String: String] {
        let chosen = pairs.sorted { $0.key < $1.key }.prefix(limits.pairs)
        return Dictionary(
            chosen.map { (cut($0.key, limits.keyBytes), cut($0.value, limits.valueBytes)) },
            uniquingKeysWith: { first, _ in first }
        )
    }

    /// Whole characters only.
    private static func cut(_ text: String, _ bytes: Int) -> String {
        guard text.utf8.count > bytes else { return text }
        var (end, length) = (text.startIndex, 0)
        while end < text.endIndex {
            length += text[end].utf8.count
            guard length <= bytes else { break }
            end = text.index(after: end)
        }
        return String(text[..<end])
    }
}
