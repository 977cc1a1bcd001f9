public import StallReports

/// Which stalls get a report of their own, and which are only counted: in the run record, and in the next report of the same fault.
///
/// All stalls with the same fingerprint are one fault. Its first stall is reported; those in the window after that are counted. While the fault
/// goes on, each window is twice as long as the one before; a window without the fault brings the first length back. A stall that is more
/// severe than all reported ones of its fault, or twice as long as the longest, is reported anyway.
public struct RepeatRule: Hashable, Sendable {
    /// How long after a report further stalls of the fault are only counted. Zero: every stall is reported.
    public var window: Duration
    /// The longest window, while the fault goes on.
    public var longestWindow: Duration
    /// How many reports are begun a minute, of all faults. Nil: no limit.
    public var reportsPerMinute: Int?
    /// How many reports can be begun at once after a quiet time.
    public var burst: Int
    /// How many bytes are written a minute before no report is begun any more; reports that were begun are written to their end. Nil: no
    /// limit.
    public var bytesPerMinute: Int?

    /// By default one report a minute of a fault that goes on, then fewer, down to one an hour; at most 120 reports and 32 MiB a minute.
    ///
    /// - Parameters:
    ///   - window: 0 to one day.
    ///   - longestWindow: 0 to one day. Raised to `window` if it is shorter.
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

/// A stall that was only counted. No more was found out about it than what that takes.
public struct SuppressedStall: Hashable, Sendable {
    /// Its fault.
    public var fingerprint: Fingerprint
    /// The rule by which it was a stall.
    public var kind: StallKind
    /// Why it was not reported.
    public var reason: SuppressionReason
    /// The type of the watched loop.
    public var type: WatchedType
    /// The label of the watched loop.
    public var label: String
    /// The last transition before the stall.
    public var startedAt: Timestamp
    /// How long it lasted, in nanoseconds.
    public var durationNs: Int64
    /// The sum of its fault since the last report, including this stall.
    public var repeats: StallReport.Repeats
}
