public import StallReports

/// What a store keeps of a stall in addition to its report.
public struct ArrivedStall: Sendable {
    /// The team that sent it.
    public let team: String
    /// The report's id, which is unique within a team.
    public let id: ULID
    /// Of two reports with the same id the one with the greater version counts. While the stall lasts it is its duration in nanoseconds.
    /// Once it has ended it is greater than any duration, and greatest if the report's functions have their names.
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

extension ArrivedStall {
    /// The version of an ended stall whose functions may get names later.
    private static let endedWithoutNames = Int64.max - 1
    private static let ended = Int64.max

    /// Whether this is the version of a stall that has ended.
    public static func isOver(_ version: Int64) -> Bool { version >= endedWithoutNames }

    init(
        _ stall: ArrivedOutline,
        _ json: [UInt8],
        _ team: String,
        _ now: Timestamp
    ) throws(ReportError) {
        guard stall.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
        self.team = team
        id = stall.id
        startedNs = try ArrivalBounds.moment(stall.startedAt, now)
        durationNs = ArrivalBounds.length(stall.durationNs)
        version = stall.state == .ongoing ? durationNs : stall.isProvisional ? Self.endedWithoutNames : Self.ended
        lastNs = max(startedNs, min(stall.lastKnownMoment.sinceEpoch, now.sinceEpoch))
        count = 1 + ArrivalBounds.count(stall.repeats.count)
        totalNs = durationNs + ArrivalBounds.length(stall.repeats.totalNs)
        longestNs = max(durationNs, ArrivalBounds.length(stall.repeats.longestNs))
        (service, release, host) = (
            ArrivalBounds.name(stall.service), ArrivalBounds.name(stall.release), ArrivalBounds.name(stall.host)
        )
        (label, verdict) = (ArrivalBounds.name(stall.label), ArrivalBounds.name(stall.verdict.canonical.rawValue))
        fingerprint = stall.fingerprint
        aliases = Array(stall.aliases.filter { $0 != stall.fingerprint }.prefix(ArrivalBounds.names))
        (culprit, place) = (ArrivalBounds.name(stall.culprit), ArrivalBounds.name(stall.place))
        body = try ArrivalBounds.packed(json)
    }
}
