/// All stalls of one fault, added up: what `faults` shows, from a directory or from a collector.
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
    /// The total duration of its stalls.
    public var totalNs: Int64 = 0
    public var longestNs: Int64 = 0
    /// Its share of the watched time. Nil if the watched time is not known.
    public var share: Double?
    public var firstAt: Timestamp
    /// When the latest stall ended, or was last sampled.
    public var lastAt: Timestamp
    public var trend = Trend()
    /// Reports by verdict, host, service and release.
    public var verdicts: [String: Int64] = [:]
    public var hosts: [String: Int64] = [:]
    public var services: [String: Int64] = [:]
    public var releases: [String: Int64] = [:]

    /// Without stalls yet.
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

    /// - Parameter span: The time span of the trend.
    public mutating func add(_ stall: StallOutline, in span: TimeSpan) {
        add(
            count: 1,
            totalNs: stall.durationNs,
            longestNs: stall.durationNs,
            from: stall.startedAt,
            to: stall.lastKnownMoment
        )
        reports = reports.addingSaturated(1)
        trend.add(1, at: stall.startedAt, in: span)
        // The stalls before it that were only counted.
        if let repeats = stall.repeats {
            add(repeats, in: span)
        } else if stall.suppressed > 0 {
            count = count.addingSaturated(Int64(clamping: stall.suppressed))
        }
        for alias in [stall.fingerprint] + (stall.aliases ?? []) where alias != fingerprint && !aliases.contains(alias)
        {
            if aliases.count < Self.nameLimit { aliases.append(alias) }
        }
        Self.count(stall.verdict.canonical.rawValue, &verdicts)
        Self.count(stall.host, &hosts)
        stall.service.map { Self.count($0, &services) }
        stall.release.map { Self.count($0, &releases) }
        if latest.map({ $0 < stall.id }) ?? true {
            (latest, culprit, place) = (stall.id, stall.culpritText, stall.culprit?.place)
        }
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
        for (name, number) in other.verdicts { verdicts[name] = (verdicts[name] ?? 0).addingSaturated(number) }
        for (name, number) in other.hosts { hosts[name] = (hosts[name] ?? 0).addingSaturated(number) }
        for (name, number) in other.services { services[name] = (services[name] ?? 0).addingSaturated(number) }
        for (name, number) in other.releases { releases[name] = (releases[name] ?? 0).addingSaturated(number) }
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

    private static func count(_ name: String, _ counts: inout [String: Int64]) {
        guard counts[name] != nil || counts.count < nameLimit else { return }
        counts[name, default: 0] += 1
    }
}
