public import StallReading
public import StallReports

// What a store answers.

/// What makes a fault new.
public enum Novelty: Hashable, Sendable {
    /// The service never had it before.
    case service
    /// The service did not have it in the previous release.
    case release
}

/// A fault that a service did not have before.
public struct NewFault: Hashable, Sendable {
    /// The fault's current fingerprint.
    public var fingerprint: Fingerprint
    /// The service's name.
    public var service: String
    /// The release in which it is new. Empty if the query was not about releases.
    public var release: String
    /// When the fault first occurred in this service or release.
    public var firstAt: Timestamp

    /// Creates one. Leave `release` empty if the query was not about releases.
    public init(fingerprint: Fingerprint, service: String, release: String = "", firstAt: Timestamp) {
        (self.fingerprint, self.service, self.release) = (fingerprint, service, release)
        self.firstAt = firstAt
    }
}

/// The faults of a time range, and how long the range was watched.
public struct FaultList: Sendable {
    /// The faults in the requested order, up to the limit.
    public var faults: [Fault]
    /// The total watched time of all loops of all runs in the range, in nanoseconds; 0 if unknown.
    public var watchedNs: Int64
    /// The number of monitors that ran in the range.
    public var runs: Int
    /// Whether a part of the store did not answer. Then faults are missing, and sums may be too small.
    public var isPartial = false

    package init(faults: [Fault], watchedNs: Int64, runs: Int, isPartial: Bool = false) {
        (self.faults, self.watchedNs, self.runs, self.isPartial) = (faults, watchedNs, runs, isPartial)
    }
}

extension Fault {
    /// The largest number of names of each kind that a store tells.
    package static let nameLimit = 256

    /// What is summed over a fault's stalls.
    package typealias Sums = (
        count: Int64, reports: Int64, totalNs: Int64, longestNs: Int64, firstNs: Int64, lastNs: Int64
    )

    /// Nil if another version of the collector wrote the fingerprint in an unknown form.
    ///
    /// - Parameter watchedNs: The total watched time; 0 if unknown.
    package init?(_ fingerprint: String, _ sums: Sums, watchedNs: Int64) {
        guard let fingerprint = Fingerprint(rawValue: fingerprint) else { return nil }
        let (firstAt, lastAt) = (Timestamp(sinceEpoch: sums.firstNs), Timestamp(sinceEpoch: sums.lastNs))
        self.init(fingerprint: fingerprint, firstAt: firstAt, lastAt: lastAt)
        (count, reports, totalNs, longestNs) = (sums.count, sums.reports, sums.totalNs, sums.longestNs)
        share = watchedNs > 0 ? min(1, Double(totalNs) / Double(watchedNs)) : nil
    }

    /// Adds reports to those of their service, release and verdict; 0 for stalls that were only counted.
    package mutating func addReports(_ reports: Int64, service: String, release: String, verdict: String) {
        Self.add(reports, of: service, to: &services)
        Self.add(reports, of: release, to: &releases)
        Self.add(reports, of: verdict, to: &verdicts)
    }

    /// Adds reports to those of their host; 0 for stalls that were only counted.
    package mutating func addReports(_ reports: Int64, host: String) { Self.add(reports, of: host, to: &hosts) }

    private static func add(_ reports: Int64, of name: String, to counts: inout [String: Int64]) {
        guard !name.isEmpty, reports >= 0, counts[name] != nil || counts.count < nameLimit else { return }
        counts[name] = (counts[name] ?? 0).addingSaturated(reports)
    }

    /// Adds stalls that came evenly in the parts of the range from `start` to `end`. Those that were only counted can be beyond its ends.
    package mutating func addToTrend(_ count: Int64, from start: Int64, to end: Int64) {
        let (start, end) = (Self.part(start), Self.part(end))
        trend.add(count, inParts: min(start, end)...end)
    }

    private static func part(_ number: Int64) -> Int { min(max(0, Int(clamping: number)), Trend.parts - 1) }

    /// Adds another fingerprint of it.
    package mutating func addAlias(_ alias: String) {
        guard aliases.count < Self.nameLimit, let alias = Fingerprint(rawValue: alias) else { return }
        aliases.append(alias)
    }
}

/// A stall as lists show it. Names are at most 256 characters long, with control characters made visible.
public struct StoredStall: Hashable, Sendable {
    /// The id of its report.
    public var id: ULID
    /// The current fingerprint of its fault.
    public var fingerprint: Fingerprint
    /// When it began.
    public var startedAt: Timestamp
    /// How long it lasted, or has lasted so far, in nanoseconds.
    public var durationNs: Int64
    /// Whether it has ended, or its process has.
    public var isOver: Bool
    /// Why the loop did not run, in one word.
    public var verdict: Verdict
    /// The service's name. Empty if unknown.
    public var service: String
    /// The service's version. Empty if unknown.
    public var release: String
    /// The host's name.
    public var host: String
    /// The name of the watched loop.
    public var label: String
    /// The name of the function to inspect, or why there is none.
    public var culprit: String

    /// Its report's place.
    package var place: StoredReport.Place { .init(startedAt: startedAt, id: id) }

    package init(
        id: ULID,
        fingerprint: Fingerprint,
        startedAt: Timestamp,
        durationNs: Int64,
        isOver: Bool,
        verdict: Verdict,
        service: String,
        release: String,
        host: String,
        label: String,
        culprit: String
    ) {
        (self.id, self.fingerprint, self.startedAt) = (id, fingerprint, startedAt)
        (self.durationNs, self.isOver, self.verdict) = (durationNs, isOver, verdict)
        (self.service, self.release, self.host) = (service, release, host)
        (self.label, self.culprit) = (label, culprit)
    }
}

/// A report as it was sent, with its place among the query's reports.
public struct StoredReport: Sendable {
    /// A report's place in the order of reports: by start, then by id.
    public struct Place: Hashable, Sendable {
        /// When the stall began.
        public var startedAt: Timestamp
        /// The report's id.
        public var id: ULID

        package init(startedAt: Timestamp, id: ULID) { (self.startedAt, self.id) = (startedAt, id) }
    }

    /// Pass it as `last` to get the reports after this one.
    public var place: Place
    /// The JSON text, UTF-8.
    public var json: [UInt8]

    package init(place: Place, json: [UInt8]) { (self.place, self.json) = (place, json) }
}

/// A run record as it was sent.
public struct StoredRun: Sendable {
    /// The run's id. Pass it as `last` to get the records after this one.
    public var id: ULID
    /// The JSON text, UTF-8.
    public var json: [UInt8]

    package init(id: ULID, json: [UInt8]) { (self.id, self.json) = (id, json) }
}

/// What a store has in memory of many documents at once.
package enum DocumentPage {
    /// A page ends after the document with which it reaches this size in bytes, compressed or not.
    package static let bytes = 4 << 20

    /// Unpacks as many documents as fit into a page, and at least one. The others are on the next page.
    package static func first<Packed, Document>(
        of packed: [Packed],
        size: (Document) -> Int,
        _ unpack: (Packed) throws -> Document
    ) rethrows -> [Document] {
        var (page, sum): ([Document], Int) = ([], 0)
        for one in packed {
            let document = try unpack(one)
            page.append(document)
            sum = sum.addingSaturated(size(document))
            if sum >= bytes { break }
        }
        return page
    }
}

/// The stalls of one fault on one day.
public struct DayCount: Hashable, Sendable {
    /// The first moment of the day in UTC.
    public var day: Timestamp
    /// The number of stalls, including those that were only counted.
    public var count: Int64
    /// Their total length in nanoseconds.
    public var totalNs: Int64

    package init(day: Timestamp, count: Int64, totalNs: Int64) {
        (self.day, self.count, self.totalNs) = (day, count, totalNs)
    }
}

/// The services that had stalls in a time range.
public struct ServiceList: Sendable {
    /// All of them, whatever their number.
    public var services: [ServiceSum]
    /// Whether a part of the store did not answer. Then services are missing, and sums may be too small.
    public var isPartial = false

    package init(services: [ServiceSum], isPartial: Bool = false) {
        (self.services, self.isPartial) = (services, isPartial)
    }
}

/// The stalls of one service.
public struct ServiceSum: Hashable, Sendable {
    /// The service's name. Empty for stalls that name none.
    public var name: String
    /// The number of stalls, including those that were only counted.
    public var count: Int64
    /// Their total length in nanoseconds.
    public var totalNs: Int64

    package init(name: String, count: Int64, totalNs: Int64) {
        (self.name, self.count, self.totalNs) = (name, count, totalNs)
    }
}

/// The names that occur in a range, most frequent first, at most 256 of each kind.
public struct Choices: Hashable, Sendable {
    /// Names of services.
    public var services: [String] = []
    /// Versions of services.
    public var releases: [String] = []
    /// Names of hosts.
    public var hosts: [String] = []
    /// Verdicts, as in reports.
    public var verdicts: [String] = []
    /// Whether a part of the store did not answer. Then names are missing.
    public var isPartial = false

    /// Creates one without any names.
    public init() {}
}

/// How much a store contains, for all teams together.
public struct StoreSize: Hashable, Sendable {
    /// The space that it uses, in bytes.
    public var bytes: Int64
    /// The number of reports.
    public var stalls: Int64
    /// The number of run records.
    public var runs: Int64

    package init(bytes: Int64, stalls: Int64, runs: Int64) {
        (self.bytes, self.stalls, self.runs) = (bytes, stalls, runs)
    }
}
