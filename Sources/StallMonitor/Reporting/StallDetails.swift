public import StallReports
import Synchronization

/// What the server adds to a report when a stall is detected: which request or job it belonged to, and of which trace.
public struct StallDetails: Hashable, Sendable {
    /// Added to ``StallMonitor/Configuration-swift.struct/metadata``. If both have a key, this value is used.
    public var metadata: [String: String]
    /// The trace of the stalled work.
    public var trace: StallReport.Trace?

    /// Creates details, by default empty.
    public init(metadata: [String: String] = [:], trace: StallReport.Trace? = nil) {
        (self.metadata, self.trace) = (metadata, trace)
    }
}

/// Requests details of a stall from the server. Waits at most a tenth of a second, because the server's code may wait for the
/// same lock that caused the stall.
final class DetailsSource: Sendable {
    typealias Question = @Sendable (StallReport) -> StallDetails

    private let labels: [String: String]
    private let ask: Question?
    private let lookup = TimedLookup(patience: DetailsSource.patience)
    private let isReported = Atomic(false)

    static let patience: Duration = .milliseconds(100)
    /// The limits of what a report includes. The rest is cut off.
    static let limits = (pairs: 64, keyBytes: 128, valueBytes: 1024)

    init(labels: [String: String] = [:], ask: Question? = nil) {
        (self.labels, self.ask) = (Self.bounded(labels), ask)
    }

    /// The server's details of a stall that was just detected, with the labels that all reports have.
    ///
    /// - Parameters:
    ///   - work: The server's description of the stalled work.
    ///   - patience: How long to wait for the answer, if not the usual time.
    ///   - tell: Called once when no answer arrives in time, and once when answers arrive again.
    func details(
        of report: StallReport,
        _ work: StalledWork = StalledWork(),
        within patience: Duration? = nil,
        tell: (StallEvent) -> Void
    ) -> StallDetails {
        guard ask != nil || work.context != nil else { return StallDetails(metadata: labels) }
        let question = { @Sendable [ask, context = work.context] in
            var details = ask?(report) ?? StallDetails()
            details.trace = details.trace ?? context?.trace
            return details
        }
        guard let details = lookup.ask(within: patience, question) else {
            if !isReported.exchange(true, ordering: .relaxed) { tell(.fault(.init(.detailsMissing))) }
            return StallDetails(metadata: labels)
        }
        if isReported.exchange(false, ordering: .relaxed) { tell(.mended(.init(.detailsMissing))) }
        // The details come first, because they are about this stall.
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
            chosen.map { ($0.key.cut(toBytes: limits.keyBytes), $0.value.cut(toBytes: limits.valueBytes)) },
            uniquingKeysWith: { first, _ in first }
        )
    }
}

extension String {
    /// The beginning of the text. Cuts between characters.
    func cut(toBytes bytes: Int) -> String {
        guard utf8.count > bytes else { return self }
        var (end, length) = (startIndex, 0)
        while end < endIndex {
            length += self[end].utf8.count
            guard length <= bytes else { break }
            end = index(after: end)
        }
        return String(self[..<end])
    }
}
