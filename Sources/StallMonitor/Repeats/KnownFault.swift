import RunLoopKit
import StallReports

/// Which watched thing stalled, and the kind of the stall. One fault may stall many things.
struct StallOrigin: Hashable {
    let label: String
    let type: WatchedType
    let kind: StallKind
    /// The service of another process whose loop it is. Nil for a loop of this process.
    var service: String?
}

/// A fault that was reported or counted.
struct KnownFault {
    /// How many origins are counted separately. Stalls of further ones are counted together, under nil.
    static let originLimit = 16

    private var report: ULID?
    /// Until this time its stalls are only counted.
    private(set) var quietUntil = MonotonicInstant(nanoseconds: 0)
    private(set) var window: Duration
    private(set) var seenAt = MonotonicInstant(nanoseconds: 0)
    /// The length of the longest reported stall.
    var longest = Duration.zero
    /// The stalls that were only counted since the last report of the same origin.
    private(set) var counted: [StallOrigin?: StallReport.Repeats] = [:]

    init(window: Duration) {
        self.window = window
    }

    /// Whether a stall of this length is worse than those reported so far.
    func isExceeded(by length: Duration) -> Bool {
        length >= longest * 2 || Severity(duration: length).rank > Severity(duration: longest).rank
    }

    /// - Returns: The stalls of this origin that were only counted since its last report.
    mutating func begin(
        _ id: ULID,
        from origin: StallOrigin?,
        at time: MonotonicInstant,
        _ rule: RepeatRule
    ) -> StallReport.Repeats? {
        defer { (report, seenAt) = (id, time) }
        if report == nil {
            quietUntil = time + window
        } else if time >= quietUntil {
            let rested = time - seenAt >= window * 2
            window = rested ? rule.window : min(window * 2, rule.longestWindow)
            quietUntil = time + window
        }
        return counted.removeValue(forKey: origin)
    }

    /// - Returns: The counts of all origins.
    mutating func count(
        _ stall: StallReport.Repeats,
        from origin: StallOrigin?,
        at time: MonotonicInstant
    ) -> StallReport.Repeats {
        var stall = stall
        stall.report = report
        add(stall, from: origin)
        seenAt = time
        let earlier = counted.values.reduce(nil) { sum, next in sum?.joined(by: next) ?? next } ?? stall
        return earlier.of(report)
    }

    private mutating func add(_ stall: StallReport.Repeats, from origin: StallOrigin?) {
        let origin = counted[origin] == nil && counted.count >= Self.originLimit ? nil : origin
        counted[origin] = counted[origin]?.joined(by: stall) ?? stall
    }

    func merged(with other: KnownFault) -> KnownFault {
        var fault = seenAt > other.seenAt ? self : other
        fault.quietUntil = max(quietUntil, other.quietUntil)
        fault.window = max(window, other.window)
        fault.longest = max(longest, other.longest)
        let older = seenAt > other.seenAt ? other : self
        for (origin, repeats) in older.counted { fault.add(repeats.of(fault.report), from: origin) }
        return fault
    }
}

extension StallReport.Repeats {
    /// The same stalls, as repeats of this report. If it is nil, they keep theirs.
    fileprivate func of(_ report: ULID?) -> Self {
        var repeats = self
        repeats.report = report ?? self.report
        return repeats
    }
}
