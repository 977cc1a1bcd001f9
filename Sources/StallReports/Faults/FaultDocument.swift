/// The order in which faults are listed.
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

/// What `faults --format json` prints, and a collector returns.
public struct FaultDocument: Codable, Sendable {
    public static let currentSchema = "stall-faults/1"

    public var schema = Self.currentSchema
    public var at: Timestamp
    /// The time span of the trends.
    public var since: Timestamp
    public var until: Timestamp
    /// The watched time of all watched loops and runs, added up; 0 if it is not known.
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
