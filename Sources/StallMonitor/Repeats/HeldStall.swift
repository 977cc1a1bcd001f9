import RunLoopKit
import StackCapture
import StallDetection
import StallReports

/// An ongoing stall that is only counted, unless it becomes worth a report.
struct HeldStall {
    let observation: StallObservation
    let fingerprint: Fingerprint
    let reason: SuppressionReason
    /// Samples taken after it began.
    private(set) var later: [StackSample] = []
    /// Its turns and callouts so far, if it is not one standstill.
    var busy: StallReport.BusyTime?
    /// The span as of the latest notice.
    var span: StallSpan

    /// Adds a sample. If there are more than a tally keeps, every second one is dropped; each represents the time since the one
    /// before it.
    mutating func add(_ sample: StackSample) {
        later.append(sample)
        guard later.count > SampleTally.limit else { return }
        later = later.enumerated().filter { !$0.offset.isMultiple(of: 2) }.map(\.element)
    }

    /// Its contribution to the sum of the fault's stalls.
    func repeats(of report: ULID?, _ clock: WallClockAnchor) -> StallReport.Repeats {
        StallReport.Repeats(
            count: 1,
            report: report,
            firstAt: clock.time(of: span.earliestStart),
            lastAt: clock.time(of: span.latestEnd),
            totalNs: span.length.nanoseconds,
            longestNs: span.length.nanoseconds
        )
    }
}
