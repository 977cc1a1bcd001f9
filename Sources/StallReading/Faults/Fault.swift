public import StallReports

/// The sums of all stalls of one fault, as `faults` shows them, from a directory or from a collector.
public struct Fault: Codable, Hashable, Sendable {
    /// The fingerprint of its latest report.
    public var fingerprint: Fingerprint
    /// Other fingerprints of the same fault.
    public var aliases: [Fingerprint] = []
    /// Its latest report. Nil if its stalls were only counted.
    public var latest: ULID?
    /// The culprit of the latest report.
    public var culprit: String?
    /// The culprit's source line: `Stalls.swift:17`.
    public var place: String?
    /// The number of its stalls, including those that were only counted.
    public var count: Int64 = 0
    /// The number of its reports.
    public var reports: Int64 = 0
    /// The total duration of its stalls, in nanoseconds.
    public var totalNs: Int64 = 0
    /// The longest stall, in nanoseconds.
    public var longestNs: Int64 = 0
    /// The share of the watched time, from 0. Nil if the watched time is not known.
    public var share: Double?
    /// When the first stall began.
    public var firstAt: Timestamp
    /// When the latest stall ended, or was last sampled.
    public var lastAt: Timestamp
    /// When the stalls occurred, by twelfths of the time span.
    public var trend = Trend()
    /// The number of reports by verdict. These four have at most 256 names each.
    public var verdicts: [String: Int64] = [:]
    /// The number of reports by host name.
    public var hosts: [String: Int64] = [:]
    /// The number of reports by service name.
    public var services: [String: Int64] = [:]
    /// The number of reports by service version.
    public var releases: [String: Int64] = [:]

    /// Creates a fault without stalls.
    public init(fingerprint: Fingerprint, firstAt: Timestamp, lastAt: Timestamp) {
        (self.fingerprint, self.firstAt, self.lastAt) = (fingerprint, firstAt, lastAt)
    }

    private enum CodingKeys: String, CodingKey {
        case fingerprint, aliases, latest, culprit, place, count, reports
        case totalNs = "total_ns"
        case longestNs = "longest_ns"
        case share
        case firstAt = "first_at"
        case lastAt = "last_at"
        case trend, verdicts, hosts, services, releases
    }
}

extension Fault {
    /// The number of names kept of each kind: a hostile directory may contain any number.
    private static let nameLimit = 256

    /// Adds a stall.
    ///
    /// - Parameter span: The time span of the trend.
    public mutating func add(_ stall: StallOutline, in span: TimeSpan) {
        add(figuresOf: stall, in: span)
        add(namesOf: stall, times: 1)
        show(stall)
    }

    /// Adds the figures of a stall: the part of ``add(_:in:)`` that differs from stall to stall.
    package mutating func add(figuresOf stall: StallOutline, in span: TimeSpan) {
        add(
            count: 1,
            totalNs: stall.durationNs,
            longestNs: stall.durationNs,
            from: stall.startedAt,
            to: stall.lastKnownMoment
        )
        reports = reports.addingSaturated(1)
        trend.add(1, at: stall.startedAt, in: span)
        // Stalls before it that were only counted.
        if let repeats = stall.repeats {
            add(repeats, in: span)
        } else if stall.suppressed > 0 {
            count = count.addingSaturated(Int64(clamping: stall.suppressed))
        }
    }

    /// Sets what the latest stall shows: the part of ``add(_:in:)`` for which only the latest stall counts.
    package mutating func show(_ stall: StallOutline) {
        guard latest.map({ $0 < stall.id }) ?? true else { return }
        (latest, culprit, place) = (stall.id, stall.culpritText, stall.culprit?.place)
    }

    /// Adds the names of a stall: the part of ``add(_:in:)`` that is the same for all stalls with the same traits and origin.
    ///
    /// - Parameter times: The number of these stalls.
    package mutating func add(namesOf stall: StallOutline, times: Int64) {
        for alias in [stall.fingerprint] + (stall.aliases ?? []) where alias != fingerprint && !aliases.contains(alias)
        {
            if aliases.count < Self.nameLimit { aliases.append(alias) }
        }
        Self.count(stall.verdict.canonical.rawValue, times, &verdicts)
        Self.count(stall.host, times, &hosts)
        stall.service.map { Self.count($0, times, &services) }
        stall.release.map { Self.count($0, times, &releases) }
    }

    /// Adds stalls that were only counted.
    public mutating func add(_ repeats: StallReport.Repeats, in span: TimeSpan) {
        add(
            count: Int64(clamping: repeats.count),
            totalNs: repeats.totalNs,
            longestNs: repeats.longestNs,
            from: repeats.firstAt,
            to: repeats.lastAt
        )
        trend.add(Int64(clamping: repeats.count), at: repeats.lastAt, in: span)
    }

    /// Adds the stalls of the same fault under another fingerprint.
    public mutating func add(_ other: Fault) {
        add(
            count: other.count,
            totalNs: other.totalNs,
            longestNs: other.longestNs,
            from: other.firstAt,
            to: other.lastAt
        )
        reports = reports.addingSaturated(other.reports)
        trend.add(other.trend)
        verdicts.merge(other.verdicts) { $0.addingSaturated($1) }
        hosts.merge(other.hosts) { $0.addingSaturated($1) }
        services.merge(other.services) { $0.addingSaturated($1) }
        releases.merge(other.releases) { $0.addingSaturated($1) }
        if let newer = other.latest, latest.map({ $0 < newer }) ?? true {
            (fingerprint, latest, culprit, place) = (other.fingerprint, newer, other.culprit, other.place)
        }
    }

    private mutating func add(count: Int64, totalNs: Int64, longestNs: Int64, from: Timestamp, to: Timestamp) {
        self.count = self.count.addingSaturated(max(0, count))
        self.totalNs = self.totalNs.addingSaturated(max(0, totalNs))
        self.longestNs = max(self.longestNs, longestNs)
        firstAt = min(firstAt, from)
        lastAt = max(lastAt, to)
    }

    private static func count(_ name: String, _ times: Int64, _ counts: inout [String: Int64]) {
        guard counts[name] != nil || counts.count < nameLimit else { return }
        counts[name] = (counts[name] ?? 0).addingSaturated(times)
    }
}

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
