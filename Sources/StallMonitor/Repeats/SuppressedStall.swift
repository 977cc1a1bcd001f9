public import StallReports

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
