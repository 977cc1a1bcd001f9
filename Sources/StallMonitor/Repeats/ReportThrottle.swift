import RunLoopKit
import StackCapture
import StallReports

/// Decides which stalls are reported, and counts the others. A function of its state and its arguments: no clock, no thread.
struct ReportThrottle {
    private var rule: RepeatRule
    private var faults: [Fingerprint: KnownFault] = [:]
    /// Maps the earlier fingerprints of faults to the later ones, if further samples showed another culprit.
    private var renamed: [Fingerprint: Fingerprint] = [:]
    private var stacks = KnownStacks()
    private var reportRate: RateLimit?
    private var byteRate: RateLimit?
    private var bytesSeen: Int64 = 0
    /// How many stalls were only counted, by reason.
    private(set) var suppressed: [SuppressionReason: Int64] = [:]

    /// How many faults are remembered. Beyond that, the least recently seen are forgotten with their sums; ``suppressed`` still
    /// includes them.
    static let faultLimit = 1024

    init(rule: RepeatRule) {
        self.rule = rule
        adopt(rule)
    }

    /// Changes the rule, also for known faults once their present windows are over.
    mutating func adopt(_ rule: RepeatRule) {
        self.rule = rule
        reportRate = rule.reportsPerMinute.map { RateLimit(perMinute: $0, burst: rule.burst) }
        byteRate = rule.bytesPerMinute.map { RateLimit(perMinute: $0, burst: $0) }
    }

    /// The fault of a stall, if an earlier stall with the same stack was named.
    func fingerprint(ofKnown observation: StallObservation) -> Fingerprint? { stacks[observation] }

    /// Remembers the fault of a stall by its stack.
    mutating func remember(_ observation: StallObservation, as fingerprint: Fingerprint) {
        stacks[observation] = fingerprint
    }

    /// Why a stall of this length is only counted. Nil: it must be reported.
    mutating func refusal(
        of fingerprint: Fingerprint,
        lasting length: Duration,
        at time: MonotonicInstant
    ) -> SuppressionReason? {
        let fault = known(fingerprint)
        if let fault = faults[fault], time < fault.quietUntil, !fault.isExceeded(by: length) { return .repeated }
        if reportRate?.hasRoom(at: time) == false { return .reportRate }
        // Bytes beyond the limit must be made up for first.
        if byteRate?.hasRoom(at: time) == false { return .byteRate }
        return nil
    }

    /// Begins a report.
    ///
    /// - Returns: The stalls of the fault and this origin that were only counted since the last report.
    mutating func begin(
        _ id: ULID,
        _ fingerprint: Fingerprint,
        from origin: StallOrigin? = nil,
        at time: MonotonicInstant
    ) -> StallReport.Repeats? {
        reportRate?.use(1, at: time)
        var fault = faults[known(fingerprint)] ?? KnownFault(window: rule.window)
        let counted = fault.begin(id, from: origin, at: time, rule)
        faults[known(fingerprint)] = fault
        forget()
        return counted
    }

    /// Notes how long a reported stall has lasted.
    mutating func note(_ length: Duration, of fingerprint: Fingerprint) {
        let name = known(fingerprint)
        guard let longest = faults[name]?.longest, longest < length else { return }
        faults[name]?.longest = length
    }

    /// Changes the fingerprint of a report from `old` to `new`, because of later samples.
    ///
    /// - Parameter isLasting: Whether `old` means `new` from now on. False for a stall that was found without a stack: all such
    ///   stalls have the same first fingerprint.
    mutating func rename(_ old: Fingerprint, _ new: Fingerprint, isLasting: Bool = true) {
        let old = known(old)
        guard old != new, let fault = faults.removeValue(forKey: old) else { return }
        faults[new] = faults[new].map { $0.merged(with: fault) } ?? fault
        guard isLasting else { return }
        if renamed.count >= Self.faultLimit { renamed = [:] }
        renamed[new] = nil
        renamed[old] = new
    }

    /// Counts a stall that has ended without a report.
    ///
    /// - Returns: The sum of its fault that is in no report yet, over all origins.
    @discardableResult
    mutating func count(
        _ stall: StallReport.Repeats,
        of fingerprint: Fingerprint,
        from origin: StallOrigin? = nil,
        _ reason: SuppressionReason,
        at time: MonotonicInstant
    ) -> StallReport.Repeats {
        let name = known(fingerprint)
        suppressed[reason, default: 0] += Int64(stall.count)
        var fault = faults[name] ?? KnownFault(window: rule.window)
        let counted = fault.count(stall, from: origin, at: time)
        faults[name] = fault
        forget()
        return counted
    }

    /// Sets how many bytes were written since the start, including run records.
    mutating func noteBytes(_ total: Int64, at time: MonotonicInstant) {
        byteRate?.use(Double(total - bytesSeen), at: time)
        bytesSeen = total
    }

    /// The sums that are in no report yet, most recent first.
    var counted: [RunRecord.Repeated] {
        faults.flatMap { name, fault in
            fault.counted.map { origin, repeats in
                var entry = RunRecord.Repeated(
                    fingerprint: name,
                    repeats: repeats,
                    label: origin?.label,
                    type: origin?.type,
                    kind: origin?.kind
                )
                entry.service = origin?.service
                return entry
            }
        }
        .sorted { $0.repeats.lastAt > $1.repeats.lastAt }
    }

    /// The present fingerprint of the fault.
    func known(_ fingerprint: Fingerprint) -> Fingerprint {
        var name = fingerprint
        // Chains of renamings are short. The limit also ends a cycle.
        for _ in 0..<4 {
            guard let next = renamed[name] else { break }
            name = next
        }
        return name
    }

    private mutating func forget() {
        guard faults.count > Self.faultLimit else { return }
        let old = faults.sorted { $0.value.seenAt < $1.value.seenAt }.prefix(Self.faultLimit / 8)
        for (name, _) in old { faults[name] = nil }
    }
}

/// Fingerprints by the addresses of stacks: a stall with a known stack is recognised without looking up symbols.
private struct KnownStacks {
    private var known: [Key: Fingerprint] = [:]
    private static let limit = 256

    private struct Key: Hashable {
        let kind: StallKind
        /// All addresses, including the innermost: another address in the same function may belong to another function that is
        /// inlined there.
        let addresses: [UInt]

        /// Nil without a stack.
        init?(_ observation: StallObservation) {
            // For a pool, one of several stacks does not identify the stall.
            guard observation.pool == nil, let stack = observation.stack.captured else { return nil }
            kind = observation.kind
            addresses = stack.addresses
        }
    }

    subscript(_ observation: StallObservation) -> Fingerprint? {
        get { Key(observation).flatMap { known[$0] } }
        set {
            guard let key = Key(observation) else { return }
            if known.count >= Self.limit { known = [:] }
            known[key] = newValue
        }
    }
}

/// A token bucket: a rate per minute, with a reserve for bursts. Pure.
struct RateLimit {
    private let perMinute: Double
    private let capacity: Double
    private var level: Double
    private var updatedAt: MonotonicInstant?

    /// Full at first.
    init(perMinute: Int, burst: Int) {
        (self.perMinute, capacity, level) = (Double(perMinute), Double(burst), Double(burst))
    }

    /// Whether there is room for one. Does not use it.
    mutating func hasRoom(at time: MonotonicInstant) -> Bool {
        refill(until: time)
        return level >= 1
    }

    /// Uses this amount even if there is no room for it. What exceeds the room is made up for before there is room again.
    mutating func use(_ amount: Double, at time: MonotonicInstant) {
        refill(until: time)
        level -= amount
    }

    private mutating func refill(until time: MonotonicInstant) {
        if let updatedAt, time > updatedAt {
            level = min(capacity, level + perMinute * Double((time - updatedAt).nanoseconds) / 60e9)
        }
        updatedAt = max(updatedAt ?? time, time)
    }
}
