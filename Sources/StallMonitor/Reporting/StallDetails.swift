public import StallReports
import Synchronization

/// What the server adds to a report when a stall is detected: which request or job it was, of which trace.
public struct StallDetails: Hashable, Sendable {
    /// Added to ``StallMonitor/Configuration-swift.struct/metadata``. Where both have a key, this value is used.
    public var metadata: [String: String]
    /// The trace of the stalled work.
    public var trace: StallReport.Trace?

    /// Empty by default.
    public init(metadata: [String: String] = [:], trace: StallReport.Trace? = nil) {
        (self.metadata, self.trace) = (metadata, trace)
    }
}

/// Asks the server for details of a stall. Waits a tenth of a second at most, because the server's code may wait for the same lock that
/// caused the stall.
final class DetailsSource: Sendable {
    typealias Question = @Sendable (StallReport) -> StallDetails

    private let labels: [String: String]
    private let ask: Question?
    private let lookup = TimedLookup()
    private let isTold = Atomic(false)

    static let patience: Duration = .milliseconds(100)
    /// The limits of what a report includes. The rest is cut off.
    static let limits = (pairs: 64, keyBytes: 128, valueBytes: 1024)

    init(labels: [String: String] = [:], ask: Question? = nil) {
        (self.labels, self.ask) = (Self.bounded(labels), ask)
    }

    /// The server's details of a stall that was just detected, with the labels that all reports have.
    ///
    /// - Parameter tell: called once when there is no answer in time, and once when there is one again.
    func details(of report: StallReport, tell: (StallEvent) -> Void) -> StallDetails {
        guard let ask else { return StallDetails(metadata: labels) }
        guard let details = lookup.ask(within: Self.patience, { ask(report) }) else {
            if !isTold.exchange(true, ordering: .relaxed) { tell(.fault(.init(.detailsMissing))) }
            return StallDetails(metadata: labels)
        }
        if isTold.exchange(false, ordering: .relaxed) { tell(.mended(.init(.detailsMissing))) }
        // The details come first: they are about this stall.
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

    /// Cuts between characters.
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
