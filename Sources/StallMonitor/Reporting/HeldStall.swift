import RunLoopKit
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

    /// Adds a sample. If there are more than a tally keeps, every second one of each thread is dropped; each represents the time since
    /// the one before it.
    mutating func add(_ sample: StackSample) {
        later.append(sample)
        guard later.count > SampleTally.limit else { return }
        later = later.halved
    }

    /// Its contribution to the sum of the fault's stalls. It begins and ends when a report of it would say.
    var repeats: StallReport.Repeats {
        let clock = observation.clock
        return StallReport.Repeats(
            count: 1,
            report: nil,
            firstAt: clock.time(of: span.earliestStart),
            lastAt: clock.time(of: span.latestEnd, sleptUntilNow: true),
            totalNs: span.length.nanoseconds,
            longestNs: span.length.nanoseconds
        )
    }
}

// MARK: - The reporter's decisions about such stalls

extension Reporter {
    /// Decides whether a stall whose fault is known is only counted.
    mutating func holdsBack(_ observation: StallObservation, _ fingerprint: Fingerprint) -> Bool {
        throttle.remember(observation, as: fingerprint)
        let now = MonotonicInstant.now
        guard let reason = throttle.refusal(of: fingerprint, lasting: observation.span.length, at: now) else {
            return false
        }
        held[observation.number] = HeldStall(
            observation: observation,
            fingerprint: fingerprint,
            reason: reason,
            span: observation.span
        )
        recordPace.noteCount()
        return true
    }

    /// Updates the length of a stall that is held back.
    ///
    /// - Returns: The stall, if it is now worth a report.
    mutating func releaseHeld(_ number: Int, _ span: StallSpan) -> HeldStall? {
        held[number]?.span = span
        guard let stall = held[number],
            throttle.refusal(of: stall.fingerprint, lasting: span.length, at: .now) == nil
        else { return nil }
        return held.removeValue(forKey: number)
    }

    /// Counts a stall that was held back until its end.
    mutating func countHeld(_ number: Int) {
        guard let stall = held.removeValue(forKey: number) else { return }
        let (repeats, origin) = (stall.repeats, stall.observation.origin)
        let all = throttle.count(repeats, of: stall.fingerprint, from: origin, stall.reason, at: .now)
        recordPace.noteCount()
        tell(
            .suppressed(
                SuppressedStall(
                    fingerprint: throttle.known(stall.fingerprint),
                    kind: origin.kind,
                    reason: stall.reason,
                    type: origin.type,
                    label: origin.label,
                    startedAt: repeats.firstAt,
                    durationNs: repeats.totalNs,
                    repeats: all
                )
            )
        )
    }

    /// The run record with the stalls that were not reported. Ongoing ones count with their present length.
    func withRepeats(_ record: RunRecord) -> RunRecord {
        var (record, throttle) = (record, throttle)
        for stall in held.values {
            let origin = stall.observation.origin
            throttle.count(stall.repeats, of: stall.fingerprint, from: origin, stall.reason, at: .now)
        }
        guard !throttle.suppressed.isEmpty else { return record }
        record.suppressed = throttle.suppressed.values.reduce(0, +)
        record.suppressedBy = Dictionary(
            uniqueKeysWithValues: throttle.suppressed.map { ($0.key.rawValue, $0.value) }
        )
        record.repeated = Array(throttle.counted.prefix(100))
        return record
    }
}

extension StallObservation {
    /// The origin under which its stalls are counted.
    var origin: StallOrigin {
        let name = watch.name
        return StallOrigin(label: name.label, type: name.type, kind: kind, service: name.service)
    }
}
