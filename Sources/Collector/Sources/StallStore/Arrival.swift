import GzipCompression
public import StallReports

/// A document that a monitor sent, checked, with the fields that a store needs.
public enum Arrival: Sendable {
    case stall(ArrivedStall)
    case run(ArrivedRun)
}

/// Why a document is refused. The text never quotes the document.
public struct RefusedArrival: Error, Hashable, CustomStringConvertible {
    public let description: String
    public init(_ description: String) { self.description = description }
}

/// What a store keeps of a stall in addition to its report.
public struct ArrivedStall: Sendable {
    public let team: String
    public let id: ULID
    /// Of two reports with the same id the greater version counts: the one that lasted longer, or the one of a stall that has ended.
    public let version: Int64
    /// Nanoseconds since 1970, as all moments whose names end in `Ns`.
    public let startedNs: Int64
    public let lastNs: Int64
    public let durationNs: Int64
    /// Includes the repeated stalls that were only counted.
    public let count: Int64
    public let totalNs: Int64
    public let longestNs: Int64
    public let service: String
    public let release: String
    public let host: String
    public let label: String
    public let verdict: String
    public let fingerprint: String
    public let aliases: [String]
    public let culprit: String
    public let place: String
    /// The report, packed by gzip.
    public let body: [UInt8]
}

public struct ArrivedRun: Sendable {
    public let team: String
    public let id: ULID
    public let updatedNs: Int64
    public let startedNs: Int64
    public let watchedNs: Int64
    public let service: String
    public let release: String
    public let host: String
    /// Whether the monitor was running when the record was made.
    public let isRunning: Bool
    /// Stalls that were counted without a report.
    public let counted: [Counted]
    public let body: [UInt8]

    public struct Counted: Sendable {
        public let fingerprint: String
        public let count: Int64
        public let totalNs: Int64
        public let longestNs: Int64
        public let firstNs: Int64
        public let lastNs: Int64
    }
}

extension Arrival {
    /// Reads a report or a run record, according to the schema that the document names.
    ///
    /// - Parameters:
    ///   - json: the document as it was sent. Nothing in it is trusted.
    ///   - now: a document from more than a day later has a wrong clock and is refused.
    public init(json: [UInt8], team: String, now: Timestamp = .now()) throws(RefusedArrival) {
        do throws(ReportError) {
            do throws(ReportError) {
                // The whole report is decoded, not only what queries use: what is accepted can be shown later.
                let report = try StallReport(json: json)
                guard report.durationNs >= 0 else { throw ReportError(.malformed, detail: "a duration is negative") }
                self = .stall(try ArrivedStall(StallOutline(report), json, team, now))
            } catch  where error.code == .unsupportedSchema {
                self = .run(try ArrivedRun(RunRecord(json: json), json, team, now))
            }
        } catch {
            throw RefusedArrival(error.detail.map { "\(error.code.name): \($0)" } ?? error.code.name)
        }
    }
}

extension Arrival {
    /// An estimate of its memory: the packed document, names and counts.
    public var heldBytes: Int {
        switch self {
        case .stall(let stall): stall.body.count + stall.aliases.count * 32 + 1024
        case .run(let run): run.body.count + run.counted.count * 128 + 512
        }
    }
}

/// Limits of numbers in a store: 366 days and a billion, so that sums of very many fit into 64 bits.
private enum Bounds {
    static let longestNs: Int64 = 366 * 86_400_000_000_000
    static let count: Int64 = 1_000_000_000
    static let names = 64
    static let nameLength = 256

    static func length(_ nanoseconds: Int64) -> Int64 { min(max(0, nanoseconds), longestNs) }
    static func count(_ count: Int) -> Int64 { min(max(0, Int64(clamping: count)), Bounds.count) }
    static func name(_ text: String?) -> String { VisibleText.of(text ?? "", limit: nameLength) }

    /// - Throws: if it is before the year 2000 or in the future: no range would show it, and it would not be removed by age.
    static func moment(_ timestamp: Timestamp, _ now: Timestamp) throws(ReportError) -> Int64 {
        let moment = timestamp.sinceEpoch
        guard timestamp.seconds > 946_684_800 else {
            throw ReportError(.malformed, detail: "its time lies before the year 2000; is the sender's clock right?")
        }
        guard moment < now.advanced(byNanoseconds: 86_400_000_000_000).sinceEpoch else {
            throw ReportError(.malformed, detail: "its time lies in the future; is the sender's clock right?")
        }
        return moment
    }

    static func packed(_ json: [UInt8]) throws(ReportError) -> [UInt8] {
        guard let packed = Gzip.compressed(json, level: 1) else {
            throw ReportError(.malformed, detail: "it is too large")
        }
        return packed
    }
}

extension ArrivedStall {
    fileprivate init(_ stall: StallOutline, _ json: [UInt8], _ team: String, _ now: Timestamp) throws(ReportError) {
        self.team = team
        id = stall.id
        startedNs = try Bounds.moment(stall.startedAt, now)
        durationNs = Bounds.length(stall.durationNs)
        version = stall.state == .ongoing ? durationNs : .max
        lastNs = max(startedNs, min(stall.lastKnownMoment.sinceEpoch, now.sinceEpoch))
        let repeats = stall.repeats
        count = 1 + Bounds.count(repeats?.count ?? stall.suppressed)
        totalNs = durationNs + Bounds.length(repeats?.totalNs ?? 0)
        longestNs = max(durationNs, Bounds.length(repeats?.longestNs ?? 0))
        (service, release, host) = (Bounds.name(stall.service), Bounds.name(stall.release), Bounds.name(stall.host))
        (label, verdict) = (Bounds.name(stall.label), Bounds.name(stall.verdict.canonical.rawValue))
        fingerprint = stall.fingerprint.rawValue
        let aliases = (stall.aliases ?? []).map(\.rawValue).filter { $0 != stall.fingerprint.rawValue }
        self.aliases = Array(aliases.prefix(Bounds.names))
        (culprit, place) = (Bounds.name(stall.culpritText), Bounds.name(stall.culprit?.place))
        body = try Bounds.packed(json)
    }
}

extension ArrivedRun {
    fileprivate init(_ run: RunRecord, _ json: [UInt8], _ team: String, _ now: Timestamp) throws(ReportError) {
        self.team = team
        id = run.id
        startedNs = try Bounds.moment(run.startedAt, now)
        updatedNs = max(startedNs, try Bounds.moment(run.updatedAt, now))
        // The sum of a thousand loops over ten years does not fit into 64 bits.
        watchedNs = run.watched.prefix(1000).reduce(0) { $0 + min(Bounds.length($1.watchedNs), .max / 2000) }
        (service, release) = (Bounds.name(run.service?.name), Bounds.name(run.service?.version))
        host = Bounds.name(run.host.name)
        isRunning = run.state == .running
        // A record has an entry for each loop that a fault stalled; here they are added up.
        var faults: [Fingerprint: StallReport.Repeats] = [:]
        for fault in (run.repeated ?? []).prefix(1000) {
            faults[fault.fingerprint] = faults[fault.fingerprint]?.joined(by: fault.repeats) ?? fault.repeats
        }
        counted = try faults.map { fingerprint, repeats throws(ReportError) in
            Counted(
                fingerprint: fingerprint.rawValue,
                count: Bounds.count(repeats.count),
                totalNs: Bounds.length(repeats.totalNs),
                longestNs: Bounds.length(repeats.longestNs),
                firstNs: try Bounds.moment(repeats.firstAt, now),
                lastNs: try Bounds.moment(repeats.lastAt, now)
            )
        }
        body = try Bounds.packed(json)
    }
}

extension Timestamp {
    /// Nanoseconds since 1970, saturated to 64 bits.
    package var sinceEpoch: Int64 { nanoseconds(since: Timestamp(seconds: 0)) }

    package init(sinceEpoch nanoseconds: Int64) { self.init(seconds: 0, nanoseconds: nanoseconds) }
}
