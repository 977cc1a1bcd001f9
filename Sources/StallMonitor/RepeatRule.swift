public import StallReports

/// Which stalls get their own report, and which are only counted: in the run record, and in the next report of the same fault.
///
/// All stalls with the same fingerprint are one fault. Its first stall is reported; those in the window after that are counted.
/// While the fault continues, each window is twice as long as the one before; after a window without the fault the first length
/// is used again. A stall that is more severe than all reported ones of its fault, or twice as long as the longest, is reported
/// anyway.
public struct RepeatRule: Hashable, Sendable {
    /// How long after a report further stalls of the fault are only counted. Zero: every stall is reported.
    public var window: Duration
    /// The longest window that is used while the fault continues.
    public var longestWindow: Duration
    /// How many reports may begin per minute, of all faults together. Nil: no limit.
    public var reportsPerMinute: Int?
    /// How many reports may begin at once after a quiet time.
    public var burst: Int
    /// After this many bytes in a minute no further report begins; reports that have begun are completed. Nil: no limit.
    public var bytesPerMinute: Int?

    /// Creates a rule. By default, a continuing fault is reported once a minute, then less often, down to once an hour; at most
    /// 120 reports and 32 MiB are written per minute.
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

    /// Reports every stall.
    public static let everyStall = RepeatRule(
        window: .zero,
        longestWindow: .zero,
        reportsPerMinute: nil,
        bytesPerMinute: nil
    )
}

/// A stall that was only counted. The monitor finds out no more about it than this.
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
