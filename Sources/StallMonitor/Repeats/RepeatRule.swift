public import StallReports

/// Which stalls get a report of their own, and which are only counted: in the run record, and in the next report of the same fault.
///
/// A fault is what a report's fingerprint stands for. Its first stall is reported. Those of the window after it are counted. Each time
/// it goes on through a whole window the next one is twice as long; a window without it brings the first length back. A stall that is more
/// severe than any reported of its fault, or twice as long as the longest, is reported all the same.
public struct RepeatRule: Hashable, Sendable {
    /// After a report of a fault, for how long others like it are only counted. Zero: every stall is reported.
    public var window: Duration
    /// What the window grows to, while the fault goes on.
    public var longestWindow: Duration
    /// Reports begun a minute, of all faults together. Nil: no limit.
    public var reportsPerMinute: Int?
    /// Reports that may be begun at once when there were none for a while.
    public var burst: Int
    /// Bytes of reports written a minute, above which none is begun; those begun are written to their end. Nil: no limit.
    public var bytesPerMinute: Int?

    /// One report a minute of a fault that goes on, then fewer until it is one an hour; 120 reports and 32 MiB a minute unless given.
    ///
    /// - Parameters:
    ///   - window: 0 to one day.
    ///   - longestWindow: 0 to one day; a shorter one than `window` counts as that.
    ///   - reportsPerMinute: 1 to 100,000.
    ///   - burst: 1 to 100,000.
    ///   - bytesPerMinute: 1 byte to 100,000 MiB.
    public init(
        window: Duration = .seconds(60),
        longestWindow: Duration = .seconds(3600),
        reportsPerMinute: Int? = 120,
        burst: Int = 60,
        bytesPerMinute: Int? = 32 << 20
    ) {
        (self.window, self.longestWindow) = (window, max(window, longestWindow))
        (self.reportsPerMinute, self.burst, self.bytesPerMinute) = (reportsPerMinute, burst, bytesPerMinute)
    }

    /// Every stall is reported.
    public static let everyStall = RepeatRule(
        window: .zero,
        longestWindow: .zero,
        reportsPerMinute: nil,
        bytesPerMinute: nil
    )
}

/// A stall that was counted, and not reported. It was not looked into further than that took.
public struct SuppressedStall: Hashable, Sendable {
    /// Which fault's it is.
    public var fingerprint: Fingerprint
    /// By which rule it was a stall.
    public var kind: StallKind
    /// Why it was not reported.
    public var reason: SuppressionReason
    /// What kind of thing stood.
    public var type: WatchedType
    /// What it is called.
    public var label: String
    /// The last transition seen before the loop stood.
    public var startedAt: Timestamp
    /// How long it lasted, in nanoseconds.
    public var durationNs: Int64
    /// All of its fault since the last report, with this one.
    public var repeats: StallReport.Repeats
}
