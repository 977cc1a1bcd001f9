import RunLoopKit

/// The watchdog of the textbooks: a thread waits on a semaphore for 50 ms at a time, and every transition signals it;
/// each wait that expires while the activity is beforeSources or afterWaiting counts, five in a row are a stall,
/// anything else resets.
struct TextbookWatcher {
    static let wait = Duration.milliseconds(50)
    static let limit = 5

    /// The segments of the trace in which it reports.
    static func reports(on trace: Trace) -> [Range<MonotonicInstant>] {
        var reports: [Range<MonotonicInstant>] = []
        var count = 0
        for segment in trace.segments {
            // The signal of the transition ends the wait, and a wait that is signalled resets the count.
            count = 0
            var time = segment.start + wait
            var hasReported = false
            while time <= segment.end {
                if segment.phase == .beforeSources || segment.phase == .afterWaiting {
                    count += 1
                    if count == limit, !hasReported {
                        reports.append(segment.start..<segment.end)
                        hasReported = true
                    }
                } else {
                    count = 0
                }
                time = time + wait
            }
        }
        return reports
    }
}
