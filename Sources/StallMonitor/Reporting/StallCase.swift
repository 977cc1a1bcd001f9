import StallDetection
import StallDiagnosis
import StallReports

/// All that is known of one stall that has a report: what the watchdog saw, what was found out since, and how far it has come. Each version of
/// the report is made of it as a whole, and of nothing else. Confined to the reporter's thread.
struct StallCase {
    let observation: StallObservation
    var findings: CaseFindings
    /// What was captured so far, with names. Older than the findings while there are new samples.
    var stacks: CaseStacks {
        didSet { hasNewSamples = false }
    }
    private(set) var hasNewSamples = false
    /// Why the thread stood by itself, without locks and without a pool's other workers. Decided at detection, and at the end.
    var cause = StallReport.Cause()
    /// Under which the stall was found: later samples may show that it is another one.
    let firstFingerprint: Fingerprint
    var state = StallState.ongoing
    var span: StallSpan
    var busy: StallReport.BusyTime?
    var endedAt: Timestamp?
    var turnDurations: TurnDurations?
    /// The process has crashed since, and lives on for its crash handler only.
    var hasCrashed = false
    /// Stalls of the same fault that were counted only.
    var repeats: StallReport.Repeats?
    var details = StallDetails()

    init(_ observation: StallObservation, _ findings: CaseFindings, _ stacks: CaseStacks) {
        (self.observation, self.findings, self.stacks) = (observation, findings, stacks)
        (span, busy) = (observation.span, observation.busy)
        firstFingerprint = stacks.fingerprint
        turnDurations = TurnDurations(observation)
    }

    mutating func add(_ sample: StackSample, _ lookup: PatientLookup) {
        findings.add(sample, lookup)
        hasNewSamples = true
    }

    /// The stall is over, or nobody looks any more.
    mutating func end(_ span: StallSpan, as state: StallState) {
        (self.span, self.state) = (span, state)
        turnDurations = TurnDurations(observation) ?? turnDurations
        endedAt = state == .abandoned ? nil : observation.clock.time(of: span.latestEnd, sleptUntilNow: true)
    }
}

extension TurnDurations {
    /// Those of the loop by now. Of one that is watched from outside nothing is known.
    fileprivate init?(_ stall: StallObservation) {
        guard stall.subject == nil else { return nil }
        self.init(stall.loop.heartbeat.turnHistogram)
    }
}
