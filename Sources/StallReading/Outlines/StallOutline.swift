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
        if let reason = stackError { return "no stack: \(Self.problem(reason))" }
        return "unknown code"
    }

    /// What is wrong, of the text of a `CaptureError`: a code, what is wrong, and what to do about it. In a column of names the code and the
    /// advice are too much; the stall's page has them beside the missing stack.
    private static func problem(_ reason: String) -> String {
        let parts = reason.split(separator: ": ", omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0].allSatisfy({ $0.isLowercase || $0 == "_" }) else { return reason }
        return String(parts[1])
    }

    /// Its end, or the moment until which it is known to have lasted.
    public var lastKnownMoment: Timestamp { endedAt ?? startedAt.advanced(byNanoseconds: max(0, durationNs)) }
}

/// A value that many outlines share, stored once.
package final class Shared<Value: Hashable & Sendable>: Hashable, Sendable {
    package let value: Value

    package init(_ value: Value) { self.value = value }

    package static func == (left: Shared, right: Shared) -> Bool { left === right || left.value == right.value }

    package func hash(into hasher: inout Hasher) { hasher.combine(value) }
}

extension Shared {
    /// The object's identity, independent of its value: a key that does not require hashing many texts.
    package struct Identity: Hashable, Sendable {
        private let shared: Shared

        package init(_ shared: Shared) { self.shared = shared }

        package static func == (left: Self, right: Self) -> Bool { left.shared === right.shared }

        package func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(shared)) }
    }
}

/// What the stalls of one fault on one loop share.
package struct OutlineTraits: Hashable, Sendable {
    package var kind: StallKind
    package var state: StallState
    package var severity: Severity
    package var type: WatchedType
    package var label: String
    package var verdict: Verdict
    package var culprit: StallReport.Culprit?
    package var culpritName: String?
    package var stackError: String?
    package var fingerprint: Fingerprint
    package var aliases: [Fingerprint]?

    package init(
        kind: StallKind,
        state: StallState,
        severity: Severity,
        type: WatchedType,
        label: String,
        verdict: Verdict,
        culprit: StallReport.Culprit?,
        culpritName: String?,
        stackError: String?,
        fingerprint: Fingerprint,
        aliases: [Fingerprint]?
    ) {
        (self.kind, self.state, self.severity, self.type) = (kind, state, severity, type)
        (self.label, self.verdict, self.culprit, self.culpritName) = (label, verdict, culprit, culpritName)
        (self.stackError, self.fingerprint, self.aliases) = (stackError, fingerprint, aliases)
    }
}

/// What the stalls of one run share.
package struct OutlineOrigin: Hashable, Sendable {
    package var run: ULID?
    package var host: String
    package var service: String?
    package var release: String?

    package init(run: ULID?, host: String, service: String?, release: String?) {
        (self.run, self.host, self.service, self.release) = (run, host, service, release)
    }
}

/// Similar stalls before a stall that were only counted.
struct OutlineRepeats: Hashable, Sendable {
    let suppressed: Int
    let repeats: StallReport.Repeats?
}

extension Sequence<StallOutline> {
    /// The first stall with each of the traits. Stalls that were read together share most of them.
    package var oncePerTraits: [StallOutline] {
        var known: Set<Shared<OutlineTraits>.Identity> = []
        return filter { known.insert(Shared.Identity($0.traits)).inserted }
    }
}

/// Traits and origins that were read, each stored once. For one thread at a time.
package struct OutlinePool: Sendable {
    private var traits: Set<Shared<OutlineTraits>> = []
    private var origins: Set<Shared<OutlineOrigin>> = []

    package init() {}

    package mutating func shared(_ outline: StallOutline) -> StallOutline {
        var outline = outline
        outline.traits = shared(outline.traits)
        outline.origin = shared(outline.origin)
        return outline
    }

    package mutating func shared(_ new: Shared<OutlineTraits>) -> Shared<OutlineTraits> {
        traits.insert(new).memberAfterInsert
    }

    package mutating func shared(_ new: Shared<OutlineOrigin>) -> Shared<OutlineOrigin> {
        origins.insert(new).memberAfterInsert
    }
}
