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

/// Sums stalls by fault, one at a time: memory grows with the faults, not with the stalls.
struct FaultTally {
    let span: TimeSpan
    private var faults: [Fault] = []
    private var indices: [Fingerprint: Int] = [:]
    /// Groups of stalls with equal names, each with its fault, in the order of arrival.
    private var groups: [(fault: Int, first: StallOutline, count: Int64)] = []
    private var groupIndices: [Group: Int] = [:]
    /// The latest stall of each fault. Nil if its stalls were only counted.
    private var latest: [StallOutline?] = []

    private struct Group: Hashable {
        let traits: Shared<OutlineTraits>.Identity
        let origin: Shared<OutlineOrigin>.Identity
    }

    init(span: TimeSpan) { self.span = span }

    mutating func add(_ stall: StallOutline) {
        let key = Group(traits: .init(stall.traits), origin: .init(stall.origin))
        let group = groupIndices[key] ?? newGroup(key, stall)
        groups[group].count += 1
        let fault = groups[group].fault
        faults[fault].add(figuresOf: stall, in: span)
        if latest[fault].map({ $0.id < stall.id }) ?? true { latest[fault] = stall }
    }

    private mutating func newGroup(_ key: Group, _ stall: StallOutline) -> Int {
        let fault = index(of: stall.fingerprint, from: stall.startedAt, to: stall.startedAt)
        groups.append((fault, stall, 0))
        groupIndices[key] = groups.count - 1
        return groups.count - 1
    }

    private mutating func index(of fingerprint: Fingerprint, from first: Timestamp, to last: Timestamp) -> Int {
        if let index = indices[fingerprint] { return index }
        faults.append(Fault(fingerprint: fingerprint, firstAt: first, lastAt: last))
        latest.append(nil)
        indices[fingerprint] = faults.count - 1
        return faults.count - 1
    }

    /// Adds stalls that were only counted and have no report.
    mutating func add(_ repeated: RunRecord.Repeated) {
        let repeats = repeated.repeats
        faults[index(of: repeated.fingerprint, from: repeats.firstAt, to: repeats.lastAt)].add(repeats, in: span)
    }

    /// The faults with the names of all their stalls, and the culprit of the latest one.
    private var named: [Fault] {
        var faults = faults
        for group in groups { faults[group.fault].add(namesOf: group.first, times: group.count) }
        for (fault, stall) in latest.enumerated() { stall.map { faults[fault].show($0) } }
        return faults
    }

    /// All faults, with aliases merged.
    ///
    /// - Parameter watchedNs: The watched time in nanoseconds; 0 if unknown.
    func all(watchedNs: Int64, by order: FaultOrder) -> [Fault] {
        let faults = named
        let names = FaultNames(pairs: faults.map { ($0.fingerprint, $0.aliases) })
        var merged: [Set<Fingerprint>: Fault] = [:]
        for fault in faults.sorted(by: { $0.fingerprint.rawValue < $1.fingerprint.rawValue }) {
            let group = names.all(of: fault.fingerprint)
            if merged[group] == nil { merged[group] = fault } else { merged[group]?.add(fault) }
        }
        return merged.map { group, fault in
            var fault = fault
            fault.aliases = group.subtracting([fault.fingerprint]).sorted { $0.rawValue < $1.rawValue }
            fault.share = watchedNs > 0 ? min(1, Double(fault.totalNs) / Double(watchedNs)) : nil
            return fault
        }
        .sorted(by: order.isBefore)
    }
}
