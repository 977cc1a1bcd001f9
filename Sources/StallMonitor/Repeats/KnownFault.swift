import RunLoopKit
import StallReports

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
