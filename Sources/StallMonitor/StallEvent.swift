public import StallReports

/// What the monitor tells the process it runs in. A handler is called on the reporter's thread, one event at a time; while it
/// runs, later events wait, and detection goes on.
public enum StallEvent: Sendable {
    /// A stall was detected, and goes on.
    case began(StallReport)
    /// It has lasted twice as long as when it was last told of, or 10 s longer.
    case grew(StallReport)
    /// It is over, or nobody looks at it any more (`abandoned`): the report is final.
    case ended(StallReport)
    /// A stall is over that was only counted, since its fault was reported not long ago or too many reports were written: see
    /// ``RepeatRule``. Told once, in the place of `began`, `grew` and `ended`.
    case suppressed(SuppressedStall)
    /// The monitor cannot do part of its work. Told once for each cause, until it is mended.
    case fault(StallMonitorError)
    /// What that fault was told for works again.
    case mended(StallMonitorError)
}
