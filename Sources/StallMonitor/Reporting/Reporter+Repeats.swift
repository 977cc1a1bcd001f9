import RunLoopKit
import StallDetection
import StallReports

// Stalls that are counted and not reported.

extension Reporter {
    /// Decides of a stall whose fault is known.
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
        recordPace.note()
        return true
    }

    /// A stall that is held back has lasted for so long.
    ///
    /// - Returns: it, if it is now worth a report.
    mutating func releaseHeld(_ number: Int, _ span: StallSpan) -> HeldStall? {
        held[number]?.span = span
        guard let stall = held[number],
            throttle.refusal(of: stall.fingerprint, lasting: span.length, at: .now) == nil
        else { return nil }
        return held.removeValue(forKey: number)
    }

    /// A stall that was held back to its end.
    mutating func countHeld(_ number: Int) {
        guard let stall = held.removeValue(forKey: number) else { return }
        let repeats = stall.repeats(of: throttle.report(of: stall.fingerprint), WallClockAnchor())
        let origin = stall.observation.origin
        let all = throttle.count(repeats, of: stall.fingerprint, from: origin, stall.reason, at: .now)
        recordPace.note()
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

    /// The run record with what was not reported, those under way counted with the length they have by now.
    func withRepeats(_ record: RunRecord) -> RunRecord {
        var (record, throttle) = (record, throttle)
        let clock = WallClockAnchor()
        for stall in held.values {
            let repeats = stall.repeats(of: throttle.report(of: stall.fingerprint), clock)
            throttle.count(
                repeats,
                of: stall.fingerprint,
                from: stall.observation.origin,
                stall.reason,
                at: .now
            )
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
    /// What its stalls are counted under.
    var origin: StallOrigin { StallOrigin(label: watch.name.label, type: watch.name.type, kind: kind) }
}

/// How often the run record is written for stalls that are only counted: soon after the first, then once a second.
struct RecordPace {
    private var isDue = false
    private var next: MonotonicInstant?

    /// Something was counted.
    mutating func note() { isDue = true }

    /// When to write at the latest, though nothing else happens. Nil: there is nothing to write.
    var deadline: MonotonicInstant? { isDue ? next ?? .now : nil }

    /// The record was written.
    mutating func wrote(at time: MonotonicInstant) { (isDue, next) = (false, time + .seconds(1)) }
}
