import StallReading
public import StallReports

/// A document that a monitor sent, checked, with the fields that a store needs.
public enum Arrival: Sendable {
    /// A stall with its report.
    case stall(ArrivedStall)
    /// A run record, with the stalls that it counted without a report.
    case run(ArrivedRun)
}

/// Why a document is refused. The text never quotes the document.
public struct RefusedArrival: Error, Hashable, CustomStringConvertible {
    /// What is wrong, in words that can be sent back to the sender.
    public let description: String
    /// Creates one with a description, which must not quote the document.
    public init(_ description: String) { self.description = description }
}

/// What a store keeps of a stall in addition to its report.
public struct ArrivedStall: Sendable {
    /// The team that sent it.
    public let team: String
    /// The report's id, which is unique within a team.
    public let id: ULID
    /// The greater version of two reports with the same id counts. It is the duration in nanoseconds while the stall lasts, and one
    /// of the two greatest numbers once it has ended: the greater of these if the report has names.
    public let version: Int64
    /// When the stall began. Names that end in `Ns` are nanoseconds; moments count from 1970.
    public let startedNs: Int64
    /// The last moment for which the report is known to be true: the end of a stall that has ended, at most the time of arrival.
    public let lastNs: Int64
    /// How long it lasted, or has lasted so far. From 0 to 366 days.
    public let durationNs: Int64
    /// The number of stalls: this one, and those like it that were only counted since. At most a billion and one.
    public let count: Int64
    /// The total length of these stalls.
    public let totalNs: Int64
    /// The length of the longest of them.
    public let longestNs: Int64
    /// The service's name. Names are at most 256 characters long, with control characters made visible; an unknown one is empty.
    public let service: String
    /// The service's version.
    public let release: String
    /// The host's name.
    public let host: String
    /// The name of the watched loop.
    public let label: String
    /// Why the loop did not run, in one word.
    public let verdict: String
    /// The fault's fingerprint when the report was written.
    public let fingerprint: String
    /// Other fingerprints of the same fault, at most 64.
    public let aliases: [String]
    /// The name of the function to inspect, or why there is none.
    public let culprit: String
    /// The culprit's source file and line. Empty if unknown.
    public let place: String
    /// The report, compressed: see ``ArrivedDocument/unpacked(_:)``.
    public let body: [UInt8]
}

/// What a store keeps of a run in addition to its run record. Names that end in `Ns` are nanoseconds; moments count from 1970.
public struct ArrivedRun: Sendable {
    /// The team that sent it.
    public let team: String
    /// The run's id, which is unique within a team.
    public let id: ULID
    /// When the record was written. A later record of the same run replaces an earlier one, and nothing but its end replaces its end.
    public private(set) var updatedNs: Int64
    /// When the monitor started.
    public let startedNs: Int64
    /// The total watched time of all its loops, saturated.
    public let watchedNs: Int64
    /// For a watcher of other processes: this time by the services that it watched, a thousand at most. Otherwise empty: it is all of the run's
    /// own service.
    public let watchedServices: [WatchedService]
    /// The service's name. Empty if the process gave none.
    public let service: String
    /// The service's version. Empty if the process gave none.
    public let release: String
    /// The host's name.
    public let host: String
    /// Whether the monitor was running when the record was written.
    public let isRunning: Bool
    /// Stalls that were counted without a report, one entry for each fault and service. Those with impossible times are left out.
    public let counted: [Counted]
    /// The run record, compressed in the same way.
    public let body: [UInt8]

    /// How long a watcher has watched one service.
    public struct WatchedService: Hashable, Sendable {
        /// The service's name. Empty if that is not known.
        public let service: String
        /// The time of all its loops, in nanoseconds, saturated.
        public let watchedNs: Int64
    }

    /// The stalls of one fault and service that a run counted without a report.
    public struct Counted: Sendable {
        /// The fault's fingerprint.
        public let fingerprint: String
        /// The service's name: the run's own, or for a watcher of other processes the one that it watched. Empty if that is not known.
        public let service: String
        /// The service's version. Empty for a watcher, which does not know the versions of what it watches.
        public let release: String
        /// The number of stalls, at most a billion.
        public let count: Int64
        /// Their total length, at most 366 days.
        public let totalNs: Int64
        /// The length of the longest.
        public let longestNs: Int64
        /// When the first of them began.
        public let firstNs: Int64
        /// When the last of them began.
        public let lastNs: Int64
    }
}

extension Arrival {
    /// How far a document's time may be ahead of this machine's clock.
    package static let aheadNs = Hours.dayNs

    /// Reads a report or a run record, according to the schema that the document names.
    ///
    /// - Parameters:
    ///   - json: The document as it was sent. Nothing in it is trusted.
    ///   - now: The time of arrival. A document from more than a day later was written with a wrong clock, and is refused.
    /// - Throws: Why the document is refused.
    public init(json: [UInt8], team: String, now: Timestamp = .now()) throws(RefusedArrival) {
        do throws(ReportError) {
            // The whole report is checked, not only what queries use, so that everything that is accepted can be shown later.
            switch try ArrivedDocument(json: json) {
            case .stall(let report): self = .stall(try ArrivedStall(ArrivedOutline(report), json, team, now))
            case .outline(let outline): self = .stall(try ArrivedStall(outline, json, team, now))
            case .run(let run): self = .run(try ArrivedRun(run, json, team, now))
            }
        } catch {
            throw RefusedArrival(error.detail.map { "\(error.code.name): \($0)" } ?? error.code.name)
        }
    }
}

extension Arrival {
    /// An estimate of the memory it uses, in bytes: the compressed document, names and counts.
    public var heldBytes: Int {
        switch self {
        case .stall(let stall): stall.body.count + stall.aliases.count * 32 + 1024
        case .run(let run):
            run.counted.reduce(run.body.count + 512) { $0 + 192 + $1.service.utf8.count }
                + run.watchedServices.reduce(0) { $0 + 64 + $1.service.utf8.count }
        }
    }
}

/// Limits of the numbers in a store: 366 days and a billion, so that sums of very many values fit into 64 bits.
private enum Bounds {
    static let longestNs: Int64 = 366 * Hours.dayNs
    static let count: Int64 = 1_000_000_000
    static let names = 64
    static let nameLength = 256

    static func length(_ nanoseconds: Int64) -> Int64 { min(max(0, nanoseconds), longestNs) }
    static func count(_ count: Int) -> Int64 { min(max(0, Int64(clamping: count)), Bounds.count) }
    static func name(_ text: String?) -> String { VisibleText.of(text ?? "", limit: nameLength) }

    /// - Throws: If the moment is before the year 2000 or in the future: no time range would show it, and it would not be removed
    ///   by age.
    static func moment(_ timestamp: Timestamp, _ now: Timestamp) throws(ReportError) -> Int64 {
        let moment = timestamp.sinceEpoch
        guard timestamp.seconds > 946_684_800 else {
            throw ReportError(.malformed, detail: "its time lies before the year 2000; is the sender's clock right?")
        }
        guard moment < now.advanced(byNanoseconds: Arrival.aheadNs).sinceEpoch else {
            throw ReportError(.malformed, detail: "its time lies in the future; is the sender's clock right?")
        }
        return moment
    }

    static func packed(_ json: [UInt8]) throws(ReportError) -> [UInt8] {
        guard let packed = ArrivedDocument.packed(json) else {
            throw ReportError(.malformed, detail: "it is too large")
        }
        return packed
    }
}

extension ArrivedStall {
    /// Whether this is the version of a stall that has ended.
    public static func isOver(_ version: Int64) -> Bool { version >= .max - 1 }

    fileprivate init(
        _ stall: ArrivedOutline,
        _ json: [UInt8],
        _ team: String,
        _ now: Timestamp
    ) throws(ReportError) {
        guard stall.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
        self.team = team
        id = stall.id
        startedNs = try Bounds.moment(stall.startedAt, now)
        durationNs = Bounds.length(stall.durationNs)
        version = stall.state == .ongoing ? durationNs : stall.isProvisional ? .max - 1 : .max
        lastNs = max(startedNs, min(stall.lastKnownMoment.sinceEpoch, now.sinceEpoch))
        count = 1 + Bounds.count(stall.repeats.count)
        totalNs = durationNs + Bounds.length(stall.repeats.totalNs)
        longestNs = max(durationNs, Bounds.length(stall.repeats.longestNs))
        (service, release, host) = (Bounds.name(stall.service), Bounds.name(stall.release), Bounds.name(stall.host))
        (label, verdict) = (Bounds.name(stall.label), Bounds.name(stall.verdict.canonical.rawValue))
        fingerprint = stall.fingerprint
        aliases = Array(stall.aliases.filter { $0 != stall.fingerprint }.prefix(Bounds.names))
        (culprit, place) = (Bounds.name(stall.culprit), Bounds.name(stall.place))
        body = try Bounds.packed(json)
    }
}

extension ArrivedRun {
    fileprivate init(_ run: RunRecord, _ json: [UInt8], _ team: String, _ now: Timestamp) throws(ReportError) {
        guard run.watched.allSatisfy({ $0.watchedNs >= 0 }) else {
            throw ReportError(.malformed, detail: "a watched time is negative")
        }
        self.team = team
        id = run.id
        startedNs = try Bounds.moment(run.startedAt, now)
        updatedNs = max(startedNs, try Bounds.moment(run.updatedAt, now))
        // Queries relate it to the run's time, so no loop's time may be cut to a length. They add up numbers with fractions.
        watchedNs = run.watched.map(\.watchedNs).saturatingSum()
        watchedServices = run.targets == nil ? [] : Self.services(run.watched)
        let (service, release) = (Bounds.name(run.service?.name), Bounds.name(run.service?.version))
        (self.service, self.release, host) = (service, release, Bounds.name(run.host.name))
        isRunning = run.state == .running
        // A record has an entry for each loop that a fault stalled. They are summed here, but a watcher's loops are of several services.
        var faults: [CountedFault: StallReport.Repeats] = [:]
        for fault in (run.repeated ?? []).prefix(1000) {
            let key = CountedFault(
                fingerprint: fault.fingerprint,
                service: run.targets == nil ? service : Bounds.name(fault.service)
            )
            faults[key] = faults[key]?.joined(by: fault.repeats) ?? fault.repeats
        }
        counted = faults.compactMap { fault, repeats in
            // The clock was wrong when one of these stalls began. All later records of the run have these times, too.
            guard let firstNs = try? Bounds.moment(repeats.firstAt, now),
                let lastNs = try? Bounds.moment(repeats.lastAt, now)
            else { return nil }
            return Counted(
                fingerprint: fault.fingerprint.rawValue,
                service: fault.service,
                release: run.targets == nil ? release : "",
                count: Bounds.count(repeats.count),
                totalNs: Bounds.length(repeats.totalNs),
                longestNs: Bounds.length(repeats.longestNs),
                firstNs: firstNs,
                lastNs: lastNs
            )
        }
        body = try Bounds.packed(json)
    }

    private static func services(_ watched: [RunRecord.Watched]) -> [WatchedService] {
        var times: [String: Int64] = [:]
        for loop in watched {
            let service = Bounds.name(loop.service)
            guard times[service] != nil || times.count < 1000 else { continue }
            times[service] = (times[service] ?? 0).addingSaturated(loop.watchedNs)
        }
        return times.sorted { $0.key < $1.key }.map { WatchedService(service: $0.key, watchedNs: $0.value) }
    }

    private struct CountedFault: Hashable {
        var fingerprint: Fingerprint
        var service: String
    }

    /// What a store knows of a run.
    package typealias Known = (updatedNs: Int64, watchedNs: Int64, isRunning: Bool)

    /// The record as a store keeps it. Nil if it changes nothing.
    ///
    /// The host's clock may have been set back: then the end of a run, and a record in which more was watched, replace what is known also if
    /// their time is earlier. They are kept with a later time, so that no earlier record replaces them.
    ///
    /// - Parameter again: Whether one that is stored already is written once more.
    package func replacing(_ known: Known?, again: Bool = false) -> ArrivedRun? {
        guard let known else { return self }
        // It was written before the end, by a clock that was set back since.
        if isRunning, !known.isRunning { return nil }
        guard updatedNs <= known.updatedNs else { return self }
        var run = self
        run.updatedNs = known.updatedNs
        if isRunning != known.isRunning || watchedNs > known.watchedNs {
            run.updatedNs += 1
            return run
        }
        return again && (!isRunning || watchedNs == known.watchedNs) ? run : nil
    }
}

extension Timestamp {
    /// Nanoseconds since 1970, saturated to 64 bits.
    package var sinceEpoch: Int64 { nanoseconds(since: Timestamp(seconds: 0)) }

    package init(sinceEpoch nanoseconds: Int64) { self.init(seconds: 0, nanoseconds: nanoseconds) }
}

/// Whole hours and days since 1970.
package enum Hours {
    package static let hourNs: Int64 = 3_600_000_000_000
    package static let dayNs: Int64 = 24 * hourNs

    /// Requires a moment after 1970, which all stored moments are.
    package static func hour(_ nanoseconds: Int64) -> Int64 { nanoseconds / hourNs }
    /// The same for days.
    package static func day(_ nanoseconds: Int64) -> Int64 { nanoseconds / dayNs }
}
