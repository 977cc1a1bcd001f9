import RunLoopKit
import StackCapture
import StallDetection
import StallReports

/// A stall under way that is counted only, unless it turns out worse.
struct HeldStall {
    let observation: StallObservation
    let fingerprint: Fingerprint
    let reason: SuppressionReason
    /// What was sampled after it was proven.
    private(set) var later: [StackSample] = []
    /// What it is made of by now, if it is more than one standstill.
    var busy: StallReport.BusyTime?
    /// As far as it was told.
    var span: StallSpan

    /// Takes one more sample. Of more than a tally keeps, every second one goes: each stands for the time since the one before it.
    mutating func add(_ sample: StackSample) {
        later.append(sample)
        guard later.count > SampleTally.limit else { return }
        later = later.enumerated().filter { !$0.offset.isMultiple(of: 2) }.map(\.element)
    }

    /// As one of many.
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

/// Fingerprints by the addresses of stacks, as long as the process lives: to know a stall again costs no look at symbols.
struct StackMemory {
    private var known: [Key: Fingerprint] = [:]
    private static let limit = 256

    private struct Key: Hashable {
        let kind: StallKind
        /// All of them, the innermost too: another place in the same function may be another function, inlined there.
        let addresses: [UInt]

        /// Nil without a stack.
        init?(_ observation: StallObservation) {
            // Of a pool one stack of several is not enough to know it by.
            guard observation.pool == nil, let stack = observation.stack.captured else { return nil }
            kind = observation.kind
            addresses = stack.frames.map(\.address) + (stack.asyncCallers?.addresses ?? [])
        }
    }

    subscript(_ observation: StallObservation) -> Fingerprint? {
        get { Key(observation).flatMap { known[$0] } }
        set {
            guard let key = Key(observation) else { return }
            if known.count >= Self.limit { known = [:] }
            known[key] = newValue
        }
    }
}
