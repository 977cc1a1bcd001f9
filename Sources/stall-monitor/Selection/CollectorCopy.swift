import Foundation
import StallReading
import StallReports
import StallShipping
import Synchronization

/// A temporary report directory with matching reports of a collector, which readers use like any other. It is removed when the
/// process ends, even by Ctrl-C.
enum CollectorCopy {
    private static let isMade = Atomic(false)

    /// Whether this process reads a copy: a directory that has nothing but what was asked for.
    static var isInUse: Bool { isMade.load(ordering: .relaxed) }

    static func isAddress(_ path: String) -> Bool {
        ["http://", "https://"].contains { path.lowercased().hasPrefix($0) }
    }

    /// - Parameter selections: These stalls are fetched, and possibly more.
    /// - Returns: The directory's path.
    static func make(of address: String, covering selections: [StallSelection]) throws -> String {
        isMade.store(true, ordering: .relaxed)
        let directory = try newDirectory()
        var line = TransientLine()
        defer { line.clear() }
        // The reader selects by a stall's end, the collector by its start.
        let question = question(covering: selections, earlierNs: 3_600_000_000_000)
        try asking(address) { client in
            try client.fetch(question, into: directory) { bytes in
                line.show("\(bytes >> 20) MiB from \(StyledText(address, limit: 200))")
            }
        }
        return directory
    }

    /// The largest number of faults that a collector sends.
    static let faultLimit = 1000

    /// Faults that the collector has summed over any number of stalls, at most ``faultLimit``; and whether some are missing, because a
    /// part of its store did not answer. Nil if the collector cannot evaluate the selection.
    static func faults(
        at address: String,
        _ selection: StallSelection,
        by order: FaultOrder
    ) throws(CommandFailure) -> (document: FaultDocument, isPartial: Bool)? {
        var rest = selection
        (rest.since, rest.until, rest.services, rest.releases, rest.hosts, rest.verdicts) = (nil, nil, [], [], [], [])
        let names = selection.services + selection.releases + selection.hosts
        guard rest.isEverything, !names.contains(where: { $0.exactName == nil }) else { return nil }
        return try asking(address) { try faults(from: $0, selection, by: order) }
    }

    private static func faults(
        from client: CollectorClient,
        _ selection: StallSelection,
        by order: FaultOrder
    ) throws -> (document: FaultDocument, isPartial: Bool) {
        let verdicts = selection.verdicts.map { (name: "verdict", value: $0.rawValue) }
        let rest = verdicts + [(name: "by", value: order.rawValue), (name: "limit", value: "\(faultLimit)")]
        var (document, isPartial) = try client.faults(question(covering: [selection]) + rest)
        guard selection.since == nil, let first = document.faults.map(\.firstAt).min() else {
            return (document, isPartial)
        }
        // Without a beginning, the collector compares the halves of years, in which every fault is new. As in a directory, the time
        // begins with the first stall.
        var known = selection
        known.since = first
        let again = try client.faults(question(covering: [known]) + rest)
        let trends = Dictionary(again.document.faults.map { ($0.fingerprint, $0.trend) }) { trend, _ in trend }
        document.since = first
        for index in document.faults.indices {
            document.faults[index].trend = trends[document.faults[index].fingerprint] ?? Trend()
        }
        isPartial = isPartial || again.isPartial
        return (document, isPartial)
    }

    private static func asking<Result>(
        _ address: String,
        _ ask: (CollectorClient) throws -> Result
    ) throws(CommandFailure) -> Result {
        do {
            let client = try CollectorClient(
                address,
                tokenFile: EnvironmentVariable.value("STALL_MONITOR_TOKEN_FILE"),
                token: EnvironmentVariable.value("STALL_MONITOR_TOKEN")
            )
            return try ask(client)
        } catch let error as ShippingError {
            throw CommandFailure(error.description)
        } catch {
            throw CommandFailure("\(address): \(error.localizedDescription)")
        }
    }

    /// A query that covers all selections. The reader applies conditions that a collector does not support, such as patterns.
    ///
    /// - Parameter earlierNs: By how much the query's range begins earlier. 0 for sums, from which the reader cannot remove a stall.
    private static func question(
        covering selections: [StallSelection],
        earlierNs: Int64 = 0
    ) -> CollectorClient.Question {
        let sinces = selections.map { $0.since?.advanced(byNanoseconds: -earlierNs) }
        let since = sinces.contains(nil) ? nil : sinces.compactMap(\.self).min()
        let untils = selections.map { $0.until?.advanced(byNanoseconds: 1) }
        let until = untils.contains(nil) ? nil : untils.compactMap(\.self).max()
        let earliest = Timestamp.now().advanced(byNanoseconds: -9 * 365 * 86_400_000_000_000)
        var question = [(name: "since", value: "\(since ?? earliest)")]
        if let until { question.append(("until", "\(until)")) }
        question += names("service", selections.map(\.services))
        question += names("release", selections.map(\.releases))
        question += names("host", selections.map(\.hosts))
        return question
    }

    /// Empty if one of them matches all names or contains a pattern.
    private static func names(_ name: String, _ patterns: [[NamePattern]]) -> CollectorClient.Question {
        let known = patterns.map { $0.map(\.exactName) }
        guard known.allSatisfy({ !$0.isEmpty && !$0.contains(nil) }) else { return [] }
        return Set(known.joined().compactMap(\.self)).sorted().map { (name, $0) }
    }

    private static func newDirectory() throws(CommandFailure) -> String {
        let path = try Folder.makeTemporary(named: "stall-monitor")
        TemporaryFiles.removeAtExit(path)
        return path
    }
}
