import StallReading
import StallReports

/// Faults as a table with one row each.
struct FaultTable {
    let faults: [Fault]
    let names: ShortFingerprints
    let now: Timestamp
    var width: Int?

    var lines: [StyledText] {
        var table = TextTable([
            .init(title: "FAULT"), .init(title: "COUNT", rank: 9), .init(title: "TOTAL"),
            .init(title: "WORST", rank: 7), .init(title: "SHARE", rank: 4), .init(title: "LAST SEEN", rank: 6),
            .init(title: "FIRST", rank: 1), .init(title: "TREND", rank: 3), .init(title: "VERDICT", rank: 8),
            .init(title: "CULPRIT", minimum: 24), .init(title: "SERVICE", minimum: 7, rank: 0),
            .init(title: "HOSTS", minimum: 7, rank: 2), .init(title: "RELEASES", minimum: 8, rank: 5, hidesEmpty: true),
        ])
        for fault in faults { table.append(cells(fault)) }
        return table.lines(width: width)
    }

    private func cells(_ fault: Fault) -> [StyledText] {
        [
            StyledText(names.short(fault.fingerprint), .yellow),
            "\(fault.count)",
            "\(DurationText(nanoseconds: fault.totalNs).short)",
            "\(DurationText(nanoseconds: fault.longestNs).short)",
            StyledText(fault.share.map(Self.percent) ?? ""),
            StyledText(fault.lastAt.ago(now)),
            StyledText(fault.firstAt.ago(now)),
            StyledText(fault.trend.direction.text),
            StyledText(Self.main(fault.verdicts), Verdict(rawValue: fault.verdicts.most ?? "").style, limit: 60),
            StyledText(fault.culpritText, limit: 120),
            StyledText(Self.main(fault.services), limit: 60),
            StyledText(Self.names(fault.hosts, "hosts"), limit: 60),
            StyledText(Self.names(fault.releases, "releases"), limit: 60),
        ]
    }

    /// `12.3 %`; never 0 for a share above 0.
    static func percent(_ share: Double) -> String {
        let tenths = Int(saturating: (share * 1000).rounded())
        return tenths == 0 && share > 0 ? "<0.1 %" : "\(tenths / 10).\(tenths % 10) %"
    }

    /// The most frequent name, and the number of others.
    private static func main(_ counts: [String: Int64]) -> String {
        guard let most = counts.most else { return "" }
        return counts.count == 1 ? most : "\(most) +\(counts.count - 1)"
    }

    private static func names(_ counts: [String: Int64], _ noun: String) -> String {
        counts.count > 2 ? "\(counts.count) \(noun)" : counts.keys.sorted().joined(separator: ", ")
    }
}

extension Trend.Direction {
    var text: String { self == .few ? "too few" : rawValue }
}

extension Fault {
    var culpritText: String { culprit ?? "only counted, in no report" }
}

extension [String: Int64] {
    /// The name with the highest count; among equals the alphabetically first.
    var most: String? { self.min { ($0.value, $1.key) > ($1.value, $0.key) }?.key }
}
