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
    /// The number of reports by host name. 0: there, its stalls were only counted. The same for services and releases.
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
    mutating func add(figuresOf stall: StallOutline, in span: TimeSpan) {
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
    mutating func show(_ stall: StallOutline) {
        guard latest.map({ $0 < stall.id }) ?? true else { return }
        (latest, culprit, place) = (stall.id, stall.culpritText, stall.culprit?.place)
    }

    /// Sets what a report shows that is not counted itself. Its host and release need not be those of the counted stalls.
    mutating func show(exampleOf stall: StallOutline) {
        add(aliasesOf: stall)
        Self.count(stall.verdict.canonical.rawValue, 0, &verdicts)
        (culprit, place) = (stall.culpritText, stall.culprit?.place)
    }

    /// Adds the names of a stall: the part of ``add(_:in:)`` that is the same for all stalls with the same traits and origin.
    ///
    /// - Parameter times: The number of these stalls.
    mutating func add(namesOf stall: StallOutline, times: Int64) {
        add(aliasesOf: stall)
        Self.count(stall.verdict.canonical.rawValue, times, &verdicts)
        Self.count(stall.host, times, &hosts)
        if let service = stall.service { Self.count(service, times, &services) }
        if let release = stall.release { Self.count(release, times, &releases) }
    }

    /// Adds the names of stalls that were only counted, which have no reports.
    mutating func add(namesOf repeated: RunRecord.Repeated, in run: RunRecord) {
        Self.count(run.host.name, 0, &hosts)
        if let service = run.service(of: repeated) { Self.count(service, 0, &services) }
        // A watcher does not know the releases of what it watches.
        if run.targets == nil, let release = run.service?.version { Self.count(release, 0, &releases) }
    }

    private mutating func add(aliasesOf stall: StallOutline) {
        for alias in [stall.fingerprint] + (stall.aliases ?? []) where alias != fingerprint && !aliases.contains(alias)
        {
            if aliases.count < Self.nameLimit { aliases.append(alias) }
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
        trend.add(Int64(clamping: repeats.count), from: repeats.firstAt, to: repeats.lastAt, in: span)
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

extension RunRecord.Repeated {
    /// Those of them that came in a time span, as if they had come evenly between the first and the last. One at least.
    ///
    /// - Parameters:
    ///   - start: Nil: the span has no beginning.
    ///   - end: Nil: the span has no end.
    package func part(since start: Timestamp?, until end: Timestamp?) -> Self {
        let length = repeats.lastAt.nanoseconds(since: repeats.firstAt)
        let first = max(repeats.firstAt, start ?? repeats.firstAt)
        let last = min(repeats.lastAt, end ?? repeats.lastAt)
        guard length > 0, repeats.count > 0, first > repeats.firstAt || last < repeats.lastAt else { return self }
        let share = min(max(0, Double(last.nanoseconds(since: first)) / Double(length)), 1)
        var part = self
        part.repeats.count = max(1, Int(saturating: (Double(repeats.count) * share).rounded()))
        let average = Double(repeats.totalNs) / Double(repeats.count)
        part.repeats.totalNs = Int64(saturating: average * Double(part.repeats.count))
        // Which of them was the longest is not known.
        part.repeats.longestNs = min(repeats.longestNs, part.repeats.totalNs)
        (part.repeats.firstAt, part.repeats.lastAt) = (first, max(first, last))
        return part
    }
}
