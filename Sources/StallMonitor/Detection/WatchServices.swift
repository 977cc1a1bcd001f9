import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// What the watched loops share when they are looked at: where stacks come from, and where findings go. Confined to the watchdog's thread.
struct WatchServices {
    let notices: Mailbox<StallNotice>
    let ledger: WatchdogLedger
    let live: LiveBoard
    let stackSource: StackSource
    var costs: CostGuard
    var supply: SupplyMeter
    /// Whether a stall counts though a tracer is attached to its thread.
    let countsTraced: Bool
    /// Nil: no stall ends the process.
    var lastResort: LastResort?
    /// How many stalls have begun: the number of the latest one.
    var stalls = 0

    /// Records a time that does not count.
    ///
    /// - Parameter watch: the label of the loop it concerns. Nil: all loops.
    func record(_ kind: PauseKind, from start: MonotonicInstant, to end: MonotonicInstant, watch: String?) {
        let pause = RunRecord.Pause(
            kind: kind,
            startedAt: WallClockAnchor().time(of: start),
            durationNs: max(.zero, end - start).nanoseconds,
            watch: watch
        )
        ledger.update { $0.pauses.add(pause) }
        notices.add(.checkpoint, mayBeDropped: true)
    }

    /// Records times in which the process was stopped, and jumps of the clocks.
    func record(_ absences: [Absence]) {
        for absence in absences {
            let wall = Timestamp.now()
            let start = absence.kind == .clockStep ? wall : wall.advanced(byNanoseconds: -absence.length.nanoseconds)
            let pause = RunRecord.Pause(
                kind: absence.kind,
                startedAt: start,
                durationNs: absence.length.nanoseconds
            )
            ledger.update { $0.pauses.add(pause) }
        }
        if !absences.isEmpty { notices.add(.checkpoint, mayBeDropped: true) }
    }
}

// Captures within the budget. They are counted in the ledger here, except for the stacks of a stall and its samples, which the
// caller counts by their outcome.

extension WatchServices {
    /// The stack of a stall. The outcome says why there is none, if so.
    mutating func detection(of thing: WatchedThing, at place: LoopPlace, _ time: MonotonicInstant) -> StackOutcome {
        costs.detection(at: time) { [stackSource] in stackSource.stack(of: thing, at: place) }
    }

    /// A further stack, if the budget permits.
    mutating func sample(of thing: WatchedThing, at place: LoopPlace, _ time: MonotonicInstant) -> StackOutcome? {
        costs.sample(at: time) { [stackSource] in stackSource.stack(of: thing, at: place) }
    }

    /// The stacks of the other threads. Takes at most `time`, for which no loop is looked at.
    func otherThreads(than thread: Int32?, within time: Duration) -> ThreadStacks? {
        let found = costs.measure(
            { stackSource.otherThreads(than: thread, within: time) },
            costs: { $0?.costs ?? [] }
        )
        if let found { ledger.update { $0.captures += found.costs.count } }
        return found
    }

    /// The owners of the lock that the loop's thread waits for.
    func lock(of thing: WatchedThing, at place: LoopPlace, _ stack: StackOutcome) -> LockFinding? {
        let found = costs.measure(
            { stackSource.lock(holding: thing, at: place, stack) },
            costs: { $0?.costs ?? [] }
        )
        if let found { ledger.update { $0.captures += found.costs.count } }
        return found
    }

    /// The stack that a thread copied when it came to run again, if it had no processor when the stack was asked for.
    func lateStack(of thing: WatchedThing, _ span: StallSpan) -> CapturedStack? {
        let found = costs.measure(
            { stackSource.lateStack(of: thing, since: span.latestStart) },
            costs: { $0.map { [$0.cost] } ?? [] }
        )
        guard let found, let copied = found.copiedAt, MonotonicInstant(nanoseconds: copied) <= span.earliestEnd else {
            return nil
        }
        ledger.update { $0.captures += 1 }
        return found
    }
}

extension ThreadStacks {
    fileprivate var costs: [CapturedStack.Cost] { groups.flatMap { $0.threads.map(\.cost) } }
}

/// Keeps the watchdog's captures within the budget, and reports when it cannot. Confined to the watchdog's thread.
struct CostGuard {
    private var budget: CostBudget
    private let limits: StallMonitor.CostLimits
    private let meter: CostMeter
    private let notices: Mailbox<StallNotice>
    private let ledger: WatchdogLedger
    /// The fault that was reported and is not over.
    private var told: StallMonitorError?

    init(
        limits: StallMonitor.CostLimits,
        meter: CostMeter,
        notices: Mailbox<StallNotice>,
        ledger: WatchdogLedger
    ) {
        (self.limits, self.meter, self.notices, self.ledger) = (limits, meter, notices, ledger)
        budget = CostBudget(limits, at: .now)
    }

    /// Updates the budget with what all threads have spent. Once a look.
    mutating func update(at now: MonotonicInstant) {
        meter.spent(.watching)
        let before = budget.account
        budget.charge(meter.totals.spent, at: now)
        let account = budget.account
        guard account != before else { return }
        ledger.update { $0.budget = account }
        tell(account.state)
    }

    /// Takes the stack of a stall if the budget permits. Otherwise the outcome says why there is none.
    mutating func detection(at now: MonotonicInstant, _ capture: () -> StackOutcome) -> StackOutcome {
        permits(.detection, at: now) ? measure(capture) : .unavailable(refusal)
    }

    /// Takes a sample if the budget permits.
    mutating func sample(at now: MonotonicInstant, _ capture: () -> StackOutcome) -> StackOutcome? {
        permits(.sample, at: now) ? measure(capture) : nil
    }

    /// Takes further stacks that follow from a permitted one, and counts their cost.
    func measure<Stacks>(_ capture: () -> Stacks, costs: (Stacks) -> [CapturedStack.Cost]) -> Stacks {
        meter.measure(capture, costs: costs)
    }

    private func measure(_ capture: () -> StackOutcome) -> StackOutcome {
        meter.measure(capture) { $0.captured.map { [$0.cost] } ?? [] }
    }

    private mutating func permits(_ purpose: CostBudget.Purpose, at now: MonotonicInstant) -> Bool {
        defer { ledger.update { [account = budget.account] in $0.budget = account } }
        return budget.permits(purpose, at: now)
    }

    private var refusal: String {
        "No stack was taken: the monitor has used up its budget (\(Self.percent(limits.processorShare)) of a processor; "
            + "watched threads held for \(Self.percent(limits.heldShare)) of the time)."
    }

    private mutating func tell(_ state: CostBudget.State) {
        switch state {
        case .stopped where told == nil:
            let error = StallMonitorError(.capturesStopped, refusal)
            told = error
            notices.add(.fault(error))
            notices.add(.checkpoint)
        case .full:
            guard let error = told else { return }
            told = nil
            notices.add(.mended(error))
            notices.add(.checkpoint)
        default: break
        }
    }

    private static func percent(_ share: Double) -> String {
        let text = String((share * 1_000_000).rounded() / 10_000)
        return (text.hasSuffix(".0") ? String(text.dropLast(2)) : text) + " %"
    }
}
