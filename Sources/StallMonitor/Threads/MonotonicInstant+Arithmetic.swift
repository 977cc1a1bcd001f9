import RunLoopKit

extension MonotonicInstant {
    static func + (instant: MonotonicInstant, duration: Duration) -> MonotonicInstant { instant.advanced(by: duration) }
    static func - (later: MonotonicInstant, earlier: MonotonicInstant) -> Duration { earlier.duration(to: later) }
}

extension Duration {
    /// The whole duration in nanoseconds, held at the ends of 64 bits (± 292 years).
    var nanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        guard !overflow else { return seconds < 0 ? .min : .max }
        let (sum, carried) = scaled.addingReportingOverflow(attoseconds / 1_000_000_000)
        return carried ? (seconds < 0 ? .min : .max) : sum
    }
}
