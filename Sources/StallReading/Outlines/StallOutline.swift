public import StallReports

/// The part of a stall's report that lists show: no stacks, no evidence, nothing that only the stall's page shows. It uses a
/// fraction of the memory: 80 bytes per stall, plus the data that many stalls share, stored once.
public struct StallOutline: Hashable, Sendable {
    // The id and the times are stored as separate fields so that no space is lost to alignment: a directory can contain a million
    // stalls.
    private let idHigh: UInt64
    private let idLow: UInt64
    /// When the stall began.
    public var startedAt: Timestamp
    /// Negative if the stall has no end.
    private let endNanoseconds: Int32
    private let endSeconds: Int64
    /// The duration, in nanoseconds. Not negative.
    public var durationNs: Int64
    private let delayShareBits: UInt64
    package var traits: Shared<OutlineTraits>
    package var origin: Shared<OutlineOrigin>
    /// Nil if no stall was suppressed before this one, which is the usual case.
    private let repeated: Shared<OutlineRepeats>?

    /// The value of a stall without a measured share. No report has this value.
    private static let noShare = Double.signalingNaN.bitPattern

    package init(
        id: ULID,
        startedAt: Timestamp,
        endedAt: Timestamp?,
        durationNs: Int64,
        runDelayShare: Double?,
        traits: Shared<OutlineTraits>,
        origin: Shared<OutlineOrigin>,
        suppressed: Int,
        repeats: StallReport.Repeats?
    ) {
        (idHigh, idLow) = (UInt64(truncatingIfNeeded: id.rawValue >> 64), UInt64(truncatingIfNeeded: id.rawValue))
        self.startedAt = startedAt
        (endSeconds, endNanoseconds) = (endedAt?.seconds ?? 0, endedAt?.nanoseconds ?? -1)
        self.durationNs = durationNs
        delayShareBits = runDelayShare?.bitPattern ?? Self.noShare
        (self.traits, self.origin) = (traits, origin)
        let isAlone = suppressed == 0 && repeats == nil
        repeated = isAlone ? nil : Shared(OutlineRepeats(suppressed: suppressed, repeats: repeats))
    }

    /// Creates an outline of a report in memory.
    public init(_ report: StallReport) {
        let traits = OutlineTraits(
            kind: report.kind,
            state: report.state,
            severity: report.severity,
            type: report.watched.type,
            label: report.watched.label,
            verdict: report.cause.verdict,
            culprit: report.culprit,
            culpritName: report.culpritName,
            stackError: report.stacks.first?.error,
            fingerprint: report.fingerprint,
            aliases: report.aliases
        )
        let origin = OutlineOrigin(
            run: report.run,
            host: report.host.name,
            service: report.service?.name,
            release: report.service?.version
        )
        self.init(
            id: report.id,
            startedAt: report.startedAt,
            endedAt: report.endedAt,
            durationNs: report.durationNs,
            runDelayShare: report.cause.evidence?.runDelayShare,
            traits: Shared(traits),
            origin: Shared(origin),
            suppressed: report.suppressed,
            repeats: report.repeats
        )
    }
}

extension StallOutline {
    /// The report's id.
    public var id: ULID { ULID(rawValue: UInt128(idHigh) << 64 | UInt128(idLow)) }
    /// When the stall ended. Nil: it is ongoing, or its end is unknown.
    public var endedAt: Timestamp? {
        endNanoseconds < 0 ? nil : Timestamp(seconds: endSeconds, nanoseconds: Int64(endNanoseconds))
    }
    /// The share of the measured time in which the thread was runnable and got no processor, from 0 to 1. Nil: not measured.
    public var runDelayShare: Double? { delayShareBits == Self.noShare ? nil : Double(bitPattern: delayShareBits) }
    /// The number of similar stalls before it that were only counted.
    public var suppressed: Int { repeated?.value.suppressed ?? 0 }
    /// These stalls, with their times. Nil if there are none.
    public var repeats: StallReport.Repeats? { repeated?.value.repeats }
    /// How the loop stalled.
    public var kind: StallKind { traits.value.kind }
    /// Whether the stall is ongoing, and how it ended.
    public var state: StallState { traits.value.state }
    /// The severity by the duration.
    public var severity: Severity { traits.value.severity }
    /// The type of the watched loop.
    public var type: WatchedType { traits.value.type }
    /// The label of the watched loop.
    public var label: String { traits.value.label }
    /// Why it stalled.
    public var verdict: Verdict { traits.value.verdict }
    /// The function to blame. Nil if none is known.
    public var culprit: StallReport.Culprit? { traits.value.culprit }
    /// The culprit's name: `StallReport.culpritName`.
    public var culpritName: String? { traits.value.culpritName }
    /// Why the stalled thread's stack is missing or ends early.
    public var stackError: String? { traits.value.stackError }
    /// The fault.
    public var fingerprint: Fingerprint { traits.value.fingerprint }
    /// Fingerprints of the same fault that the report had before.
    public var aliases: [Fingerprint]? { traits.value.aliases }
    /// The run of the monitor that reported it.
    public var run: ULID? { origin.value.run }
    /// The host's name.
    public var host: String { origin.value.host }
    /// The service's name. Nil if the report has none.
    public var service: String? { origin.value.service }
    /// The service's version. Nil if the report has none.
    public var release: String? { origin.value.release }
}

extension StallOutline {
    /// The function to inspect, or why there is none.
    public var culpritText: String {
        if let name = culpritName { return name }
        if let reason = stackError { return "no stack: \(reason)" }
        return "unknown"
    }

    /// Its end, or the moment until which it is known to have lasted.
    public var lastKnownMoment: Timestamp { endedAt ?? startedAt.advanced(byNanoseconds: max(0, durationNs)) }
}
