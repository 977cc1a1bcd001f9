import RunLoopKit
import StallReports

/// Decides which stalls are reported, and counts the others. A function of its state and what it is told: no clock, no thread.
struct ReportThrottle {
    private let rule: RepeatRule
    private var faults: [Fingerprint: KnownFault] = [:]
    /// What a fault turned out to be whose later samples showed more.
    private var renamed: [Fingerprint: Fingerprint] = [:]
    private var reportRate: RateLimit?
    private var byteRate: RateLimit?
    private var bytesSeen: Int64 = 0
    /// All stalls that were counted only, by the reason.
    private(set) var suppressed: [SuppressionReason: Int64] = [:]

    /// Faults remembered. Of more, those seen longest ago are forgotten, with what their stalls add up to; ``suppressed`` has them still.
    static let faultLimit = 1024

    init(rule: RepeatRule) {
        self.rule = rule
        reportRate = rule.reportsPerMinute.map { RateLimit(perMinute: $0, burst: rule.burst) }
        byteRate = rule.bytesPerMinute.map { RateLimit(perMinute: $0, burst: $0) }
    }

    /// Why a stall that has lasted for so long is to be counted only. Nil: it is to be reported.
    mutating func refusal(
        of fingerprint: Fingerprint,
        lasting length: Duration,
        at time: MonotonicInstant
    ) -> SuppressionReason? {
        let fault = known(fingerprint)
        if let fault = faults[fault], time < fault.quietUntil, !fault.isExceeded(by: length) { return .repeated }
        if reportRate?.hasRoom(for: 1, at: time) == false { return .reportRate }
        // A debt is paid off first.
        if byteRate?.hasRoom(for: 1, at: time) == false { return .byteRate }
        return nil
    }

    /// A report is begun.
    ///
    /// - Returns: the stalls of the fault that were counted since its last one.
    mutating func begin(_ id: ULID, _ fingerprint: Fingerprint, at time: MonotonicInstant) -> StallReport.Repeats? {
        reportRate?.use(1, at: time)
        var fault = faults[known(fingerprint)] ?? KnownFault(window: rule.window)
        let counted = fault.begin(id, at: time, rule)
        faults[known(fingerprint)] = fault
        forget()
        return counted
    }

    /// How long a reported stall has lasted by now.
    mutating func note(_ length: Duration, of fingerprint: Fingerprint) {
        let name = known(fingerprint)
        guard let longest = faults[name]?.longest, longest < length else { return }
        faults[name]?.longest = length
    }

    /// What a report was begun under, and what its later samples made of it.
    ///
    /// - Parameter isLasting: from now on the first name stands for the second. Not so for a stall that was found without a stack: that
    ///   name is any such stall's.
    mutating func rename(_ old: Fingerprint, _ new: Fingerprint, isLasting: Bool = true) {
        let old = known(old)
        guard old != new, let fault = faults.removeValue(forKey: old) else { return }
        faults[new] = faults[new].map { $0.merged(with: fault) } ?? fault
        guard isLasting else { return }
        if renamed.count >= Self.faultLimit { renamed = [:] }
        renamed[new] = nil
        renamed[old] = new
    }

    /// A stall is over that was not reported.
    ///
    /// - Returns: all of its fault since the last report.
    @discardableResult
    mutating func count(
        _ stall: StallReport.Repeats,
        of fingerprint: Fingerprint,
        _ reason: SuppressionReason,
        at time: MonotonicInstant
    ) -> StallReport.Repeats {
        let name = known(fingerprint)
        suppressed[reason, default: 0] += Int64(stall.count)
        var fault = faults[name] ?? KnownFault(window: rule.window)
        let counted = fault.count(stall, at: time)
        faults[name] = fault
        forget()
        return counted
    }

    /// Bytes written since the start, of reports and all else.
    mutating func noteBytes(_ total: Int64, at time: MonotonicInstant) {
        byteRate?.use(Double(total - bytesSeen), at: time)
        bytesSeen = total
    }

    /// What was counted and stands in no report yet, the latest first.
    var counted: [RunRecord.Repeated] {
        faults.compactMap { name, fault in fault.counted.map { .init(fingerprint: name, repeats: $0) } }
            .sorted { $0.repeats.lastAt > $1.repeats.lastAt }
    }

    /// The report that stalls of the fault repeat.
    func report(of fingerprint: Fingerprint) -> ULID? { faults[known(fingerprint)]?.report }

    /// What the fault is called by now.
    func known(_ fingerprint: Fingerprint) -> Fingerprint {
        var name = fingerprint
        // A chain of renamings is short; one that leads in a circle ends, too.
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

/// A fault that has been reported, or counted, and what became of it since.
struct KnownFault {
    private(set) var report: ULID?
    /// Until then its stalls are counted only.
    private(set) var quietUntil = MonotonicInstant(nanoseconds: 0)
    private(set) var window: Duration
    private(set) var seenAt = MonotonicInstant(nanoseconds: 0)
    /// Of those reported.
    var longest = Duration.zero
    /// Since the last report.
    private(set) var counted: StallReport.Repeats?

    init(window: Duration) {
        self.window = window
    }

    /// Whether a stall of this length says more than the reports so far.
    func isExceeded(by length: Duration) -> Bool {
        length >= longest * 2 || Severity(duration: length).rank > Severity(duration: longest).rank
    }

    /// - Returns: what was counted since the last report.
    mutating func begin(_ id: ULID, at time: MonotonicInstant, _ rule: RepeatRule) -> StallReport.Repeats? {
        defer { (report, counted, seenAt) = (id, nil, time) }
        if report == nil {
            quietUntil = time + window
        } else if time >= quietUntil {
            let rested = time - seenAt >= window * 2
            window = rested ? rule.window : min(window * 2, rule.longestWindow)
            quietUntil = time + window
        }
        return counted
    }

    mutating func count(_ stall: StallReport.Repeats, at time: MonotonicInstant) -> StallReport.Repeats {
        var stall = stall
        stall.report = report
        let all = counted?.joined(by: stall) ?? stall
        (counted, seenAt) = (all, time)
        return all
    }

    func merged(with other: KnownFault) -> KnownFault {
        var fault = seenAt > other.seenAt ? self : other
        fault.quietUntil = max(quietUntil, other.quietUntil)
        fault.window = max(window, other.window)
        fault.longest = max(longest, other.longest)
        fault.counted = [counted, other.counted].compactMap { $0 }.reduce(nil) { $0?.joined(by: $1) ?? $1 }
        return fault
    }
}

extension Severity {
    /// Higher is worse.
    fileprivate var rank: Int {
        switch self {
        case .critical: 2
        case .error: 1
        default: 0
        }
    }
}

/// So much a minute, with a reserve for bursts (a token bucket). Pure.
struct RateLimit {
    private let perMinute: Double
    private let capacity: Double
    private var level: Double
    private var updatedAt: MonotonicInstant?

    /// Full at first.
    init(perMinute: Int, burst: Int) {
        (self.perMinute, capacity, level) = (Double(perMinute), Double(burst), Double(burst))
    }

    /// Whether there is room for so much. Takes nothing.
    mutating func hasRoom(for amount: Double, at time: MonotonicInstant) -> Bool {
        refill(until: time)
        return level >= amount
    }

    /// Takes what was used, also what there was no room for: then there is none for longer.
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
