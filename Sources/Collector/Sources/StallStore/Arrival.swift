internal import GzipCompression
public import StallReports

/// Something that a monitor sent, checked and taken apart for a store.
public enum Arrival: Sendable {
    case stall(ArrivedStall)
    case run(ArrivedRun)
}

/// Why something is not taken. The text never quotes it.
public struct RefusedArrival: Error, Hashable, CustomStringConvertible {
    public let description: String
    public init(_ description: String) { self.description = description }
}

/// What a store keeps of a stall beside its report.
public struct ArrivedStall: Sendable {
    public let team: String
    public let id: ULID
    /// Of two with the same id the greater one holds: what lasts longer, and what is over.
    public let version: Int64
    /// Since 1970, as all that ends in `Ns` and is a moment.
    public let startedNs: Int64
    public let lastNs: Int64
    public let durationNs: Int64
    /// With those before it that were only counted.
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
    /// The report, packed.
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
    /// When this was made, the monitor was running.
    public let isRunning: Bool
    /// Stalls that stand in no report.
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
    /// Either a report or a run's record, by the schema that it names.
    ///
    /// - Parameters:
    ///   - json: what was sent. Nothing of it is trusted.
    ///   - now: what comes later by more than a day has a wrong clock.
    public init(json: [UInt8], team: String, now: Timestamp = .now()) throws(RefusedArrival) {
        do throws(ReportError) {
            do throws(ReportError) {
                // All of it, also what questions do not look at: what is taken can be shown later.
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
    /// What it takes in memory, about: its packed document, its names, and what it counts.
    public var heldBytes: Int {
        switch self {
        case .stall(let stall): stall.body.count + stall.aliases.count * 32 + 1024
        case .run(let run): run.body.count + run.counted.count * 128 + 512
        }
    }
}

/// What a store can count with: 366 days and a billion at most, so that sums of very many stay in 64 bits.
private enum Bounds {
    static let longestNs: Int64 = 366 * 86_400_000_000_000
    static let count: Int64 = 1_000_000_000
    static let names = 64
    static let nameLength = 256

    static func length(_ nanoseconds: Int64) -> Int64 { min(max(0, nanoseconds), longestNs) }
    static func count(_ count: Int) -> Int64 { min(max(0, Int64(clamping: count)), Bounds.count) }
    static func name(_ text: String?) -> String { VisibleText.of(text ?? "", limit: nameLength) }

    /// - Throws: where it lies before this century, or in the future: no range would ever show it, and no age remove it.
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
        // A thousand things of a process for ten years are three million years.
        watchedNs = run.watched.prefix(1000).reduce(0) { $0 + min(Bounds.length($1.watchedNs), .max / 2000) }
        (service, release) = (Bounds.name(run.service?.name), Bounds.name(run.service?.version))
        host = Bounds.name(run.host.name)
        isRunning = run.state == .running
        // A record has an entry for each watched thing that a fault held up; here they count together.
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
    /// In nanoseconds since 1970, held at the ends of 64 bits.
    package var sinceEpoch: Int64 { nanoseconds(since: Timestamp(seconds: 0)) }

    package init(sinceEpoch nanoseconds: Int64) { self.init(seconds: 0, nanoseconds: nanoseconds) }
}
