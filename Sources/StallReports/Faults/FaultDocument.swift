/// Which faults come first.
public enum FaultOrder: String, CaseIterable, Sendable {
    case total, count, worst, last

    public func isBefore(_ left: Fault, _ right: Fault) -> Bool {
        let isSame =
            switch self {
            case .total: left.totalNs == right.totalNs
            case .count: left.count == right.count
            case .worst: left.longestNs == right.longestNs
            case .last: left.lastAt == right.lastAt
            }
        if isSame { return left.fingerprint.rawValue < right.fingerprint.rawValue }
        return switch self {
        case .total: left.totalNs > right.totalNs
        case .count: left.count > right.count
        case .worst: left.longestNs > right.longestNs
        case .last: left.lastAt > right.lastAt
        }
    }
}

/// What `faults --format json` prints, and a collector answers.
public struct FaultDocument: Codable, Sendable {
    public static let currentSchema = "stall-faults/1"

    public var schema = Self.currentSchema
    public var at: Timestamp
    /// What the trends are told of.
    public var since: Timestamp
    public var until: Timestamp
    /// All watched things of all runs together; 0 if nobody knows.
    public var watchedNs: Int64
    public var faults: [Fault]

    /// Nothing is checked.
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
