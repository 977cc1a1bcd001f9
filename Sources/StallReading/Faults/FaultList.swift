public import StallReports

/// The order in which faults are listed.
public enum FaultOrder: String, CaseIterable, Sendable {
    /// By total duration, by number of stalls, by longest stall, or by latest stall: greatest first.
    case total, count, worst, last

    /// Whether `left` is listed before `right`. Equal faults are ordered by their fingerprints.
    public func isBefore(_ left: Fault, _ right: Fault) -> Bool {
        func precedes<Key: Comparable>(by key: (Fault) -> Key) -> Bool {
            guard key(left) == key(right) else { return key(left) > key(right) }
            return left.fingerprint.rawValue < right.fingerprint.rawValue
        }
        return switch self {
        case .total: precedes(by: \.totalNs)
        case .count: precedes(by: \.count)
        case .worst: precedes(by: \.longestNs)
        case .last: precedes(by: \.lastAt)
        }
    }
}

/// What `faults --format json` prints, and a collector returns.
public struct FaultDocument: Codable, Sendable {
    /// The schema that this version writes.
    public static let currentSchema = "stall-faults/1"

    /// A document with another schema than ``currentSchema`` is rejected.
    public var schema = Self.currentSchema
    /// When the document was made.
    public var at: Timestamp
    /// The beginning of the time span of the trends.
    public var since: Timestamp
    /// The end of that time span.
    public var until: Timestamp
    /// The total watched time of all watched loops and runs, in nanoseconds; 0 if unknown.
    public var watchedNs: Int64
    /// The faults, in the requested order.
    public var faults: [Fault]

    /// Creates a document. The values are not checked.
    public init(at: Timestamp, since: Timestamp, until: Timestamp, watchedNs: Int64, faults: [Fault]) {
        (self.at, self.since, self.until) = (at, since, until)
        (self.watchedNs, self.faults) = (watchedNs, faults)
    }

    private enum CodingKeys: String, CodingKey {
        case schema, at, since, until
        case watchedNs = "watched_ns"
        case faults
    }
}

/// The time span for which faults are listed.
public struct TimeSpan: Hashable, Sendable {
    /// The beginning.
    public let start: Timestamp
    /// The end.
    public let end: Timestamp

    /// Creates a time span. The values are not checked.
    public init(start: Timestamp, end: Timestamp) { (self.start, self.end) = (start, end) }

    /// The index of the part that contains a moment, of `parts` equal ones; the first or the last for a moment outside the
    /// span.
    public func part(of moment: Timestamp, among parts: Int) -> Int {
        let length = Double(end.nanoseconds(since: start))
        guard length > 0 else { return parts - 1 }
        let share = Double(moment.nanoseconds(since: start)) / length
        return min(max(Int(saturating: share * Double(parts)), 0), parts - 1)
    }
}

/// The number of stalls in each twelfth of the time span.
public struct Trend: Hashable, Codable, Sendable {
    /// The number of parts of the time span.
    public static let parts = 12
    /// ``parts`` counts, earliest first.
    public private(set) var counts = [Int64](repeating: 0, count: Trend.parts)

    /// Creates a trend without stalls.
    public init() {}

    /// Adds stalls of one moment. A moment outside the span counts in its first or last part.
    public mutating func add(_ count: Int64, at moment: Timestamp, in span: TimeSpan) {
        add(count, inPart: span.part(of: moment, among: Self.parts))
    }

    /// Adds stalls of which only the first and the last moment are known, as if they had come evenly between them.
    mutating func add(_ count: Int64, from first: Timestamp, to last: Timestamp, in span: TimeSpan) {
        let end = span.part(of: last, among: Self.parts)
        add(count, inParts: min(span.part(of: first, among: Self.parts), end)...end)
    }

    /// Adds stalls that came evenly in several parts.
    ///
    /// - Parameter parts: From 0; nothing is added if they are out of range.
    public mutating func add(_ count: Int64, inParts parts: ClosedRange<Int>) {
        guard parts.lowerBound >= 0, parts.upperBound < Self.parts else { return }
        var left = max(0, count)
        for part in parts {
            let share = left / Int64(parts.upperBound - part + 1)
            add(share, inPart: part)
            left -= share
        }
    }

    /// - Parameter part: From 0; nothing is added if it is out of range.
    public mutating func add(_ count: Int64, inPart part: Int) {
        guard counts.indices.contains(part) else { return }
        counts[part] = counts[part].addingSaturated(max(0, count))
    }

    /// Adds another trend of the same time span.
    public mutating func add(_ other: Trend) {
        counts = zip(counts, other.counts).map { $0.addingSaturated($1) }
    }

    /// Whether the fault occurs more or less often than before. The raw values are used in JSON.
    public enum Direction: String, Codable, Sendable {
        /// Stalls in the second half only.
        case new
        /// More stalls in the second half, no proven change, or fewer stalls.
        case rising, steady, falling
        /// Stalls in the first half only.
        case gone
        /// Too few stalls to decide.
        case few
    }

    /// Compares the halves of the time span: for counts (Poisson), a difference of more than two standard deviations is not
    /// chance.
    public var direction: Direction {
        let early = counts.prefix(Self.parts / 2).saturatingSum()
        let late = counts.suffix(Self.parts / 2).saturatingSum()
        guard early.addingSaturated(late) >= 4 else { return .few }
        if early == 0 { return .new }
        if late == 0 { return .gone }
        let difference = Double(late) - Double(early)
        if abs(difference) <= 2 * (Double(early) + Double(late)).squareRoot() { return .steady }
        return difference > 0 ? .rising : .falling
    }

    /// One character per part: `▁▁▂▇█▁`, with a blank for zero.
    public var line: String {
        let marks = Array("▁▂▃▄▅▆▇█")
        guard let most = counts.max(), most > 0 else { return "" }
        return String(counts.map { $0 == 0 ? " " : marks[min(Int(Double($0) / Double(most) * 8), 7)] })
    }

    private enum CodingKeys: String, CodingKey { case counts, direction }

    /// Reads the counts. Counts beyond ``parts`` and negative ones are ignored.
    public init(from decoder: any Decoder) throws {
        let counts = try decoder.container(keyedBy: CodingKeys.self).decode([Int64].self, forKey: .counts)
        for (part, count) in counts.enumerated() { add(count, inPart: part) }
    }

    /// Writes the counts, and the direction for readers of the JSON.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(counts, forKey: .counts)
        try container.encode(direction, forKey: .direction)
    }
}

/// Sums stalls by fault, one at a time: memory grows with the faults, not with the stalls.
package struct FaultTally {
    package let span: TimeSpan
    private var faults: [Fault] = []
    private var indices: [Fingerprint: Int] = [:]
    /// Groups of stalls with equal names, each with its fault, in the order of arrival.
    private var groups: [(fault: Int, first: StallOutline, count: Int64)] = []
    private var groupIndices: [Group: Int] = [:]
    /// The latest stall of each fault. Nil if its stalls were only counted.
    private var latest: [StallOutline?] = []
    /// For faults whose stalls were only counted: a report that names the fault and is not counted itself.
    private var examples: [Int: StallOutline] = [:]

    private struct Group: Hashable {
        let traits: Shared<OutlineTraits>.Identity
        let origin: Shared<OutlineOrigin>.Identity
    }

    package init(span: TimeSpan) { self.span = span }

    package mutating func add(_ stall: StallOutline) {
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
    ///
    /// - Parameters:
    ///   - run: The run that counted them.
    ///   - example: A report of the fault that is not added itself. It names the fault if no other does.
    package mutating func add(_ repeated: RunRecord.Repeated, of run: RunRecord, like example: StallOutline? = nil) {
        let repeats = repeated.repeats
        let fault = index(of: repeated.fingerprint, from: repeats.firstAt, to: repeats.lastAt)
        faults[fault].add(repeats, in: span)
        faults[fault].add(namesOf: repeated, in: run)
        if let example { examples[fault] = example }
    }

    /// The faults with the names of all their stalls, and the culprit of the latest one.
    private var named: [Fault] {
        var faults = faults
        for (fault, stall) in examples where latest[fault] == nil { faults[fault].show(exampleOf: stall) }
        for group in groups { faults[group.fault].add(namesOf: group.first, times: group.count) }
        for (fault, stall) in latest.enumerated() {
            if let stall { faults[fault].show(stall) }
        }
        return faults
    }

    /// All faults, with aliases merged.
    ///
    /// - Parameter watchedNs: The watched time in nanoseconds; 0 if unknown.
    package func all(watchedNs: Int64, by order: FaultOrder) -> [Fault] {
        let faults = named
        let names = FaultNames(pairs: faults.map { ($0.fingerprint, $0.aliases) })
        var merged: [Fingerprint: Fault] = [:]
        for fault in faults.sorted(by: { $0.fingerprint.rawValue < $1.fingerprint.rawValue }) {
            let first = names.first(of: fault.fingerprint)
            if merged[first] == nil { merged[first] = fault } else { merged[first]?.add(fault) }
        }
        return merged.values.map { fault in
            var (fault, group) = (fault, names.all(of: fault.fingerprint))
            group.remove(fault.fingerprint)
            fault.aliases = group.sorted { $0.rawValue < $1.rawValue }
            fault.share = watchedNs > 0 ? min(1, Double(fault.totalNs) / Double(watchedNs)) : nil
            return fault
        }
        .sorted(by: order.isBefore)
    }
}
