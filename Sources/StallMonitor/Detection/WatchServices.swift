import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// What the watched loops share when they are looked at: the source of stacks, and the destinations of findings. Confined to the
/// watchdog's thread.
struct WatchServices {
    let notices: Mailbox<StallNotice>
    let ledger: WatchdogLedger
    let live: LiveBoard
    private(set) var stackSource: StackSource
    var costs: CostGuard
    var supply: SupplyMeter
    /// Whether a stall counts even if a tracer is attached to its thread.
    private(set) var countsTraced = false
    /// Nil: no stall ends the process.
    var lastResort: LastResort?
    /// How many stalls have begun: the number of the latest one.
    var stalls = 0
    /// How long captures of all threads have taken since the watchdog last checked that it was not stopped.
    private(set) var captured = Duration.zero

    mutating func adopt(_ configuration: StallMonitor.Configuration) {
        countsTraced = configuration.countsTracedStalls
        stackSource.followsLocks = configuration.followsLocks
        stackSource.capturesAllThreads = configuration.capturesAllThreads
        guard lastResort?.limit != configuration.abortsAfter else { return }
        lastResort = configuration.abortsAfter.map { LastResort(limit: $0, abortPatience: configuration.abortPatience) }
    }

    /// Records a time that does not count.
    ///
    /// - Parameter watch: The label of the loop that it concerns. Nil: all loops.
    func record(_ kind: PauseKind, from start: MonotonicInstant, to end: MonotonicInstant, watch: String?) {
        let pause = RunRecord.Pause(
            kind: kind,
            startedAt: WallClockAnchor().time(of: start),
            durationNs: max(.zero, end - start).nanoseconds,
            watch: watch
        )
        record(pause)
    }

    /// Records times in which the process was stopped, and jumps of the clocks.
    func record(_ absences: [Absence]) {
        for absence in absences {
            let wall = Timestamp.now()
            let start = absence.kind == .clockStep ? wall : wall.advanced(byNanoseconds: -absence.length.nanoseconds)
            record(RunRecord.Pause(kind: absence.kind, startedAt: start, durationNs: absence.length.nanoseconds))
        }
    }

    private func record(_ pause: RunRecord.Pause) {
        ledger.update { $0.pauses.add(pause) }
        notices.add(.checkpoint, mayBeDropped: true)
    }
}

// MARK: - Captures within the budget

// Counted in the ledger here, except for the stacks of a stall and its samples: the caller counts these by their outcome.

extension WatchServices {
    /// The stack of a stall; or an outcome that says why there is none.
    mutating func detection(of thing: WatchedThing, at place: LoopPlace, _ time: MonotonicInstant) -> StackOutcome {
        costs.detection(at: time) { [stackSource] in stackSource.stack(of: thing, at: place) }
    }

    /// A further stack, if the budget permits.
    mutating func sample(of thing: WatchedThing, at place: LoopPlace, _ time: MonotonicInstant) -> StackOutcome? {
        costs.sample(at: time) { [stackSource] in stackSource.stack(of: thing, at: place) }
    }

    /// The stacks of the other threads. Takes at most `time`, during which no loop is looked at.
    mutating func otherThreads(than thread: Int32?, within time: Duration) -> ThreadStacks? {
        let start = MonotonicInstant.now
        // If it took longer, the process may have been stopped.
        defer { captured += min(.now - start, time) }
        return counted(\.costs) { stackSource.otherThreads(than: thread, within: time) }
    }

    /// How long the calls of ``otherThreads(than:within:)`` since the previous call of this have taken.
    mutating func takeCaptured() -> Duration {
        defer { captured = .zero }
        return captured
    }

    /// The owners of the lock that the loop's thread waits for.
    func lock(awaitedBy thing: WatchedThing, at place: LoopPlace, _ stack: StackOutcome) -> LockFinding? {
        counted(\.costs) { stackSource.lock(awaitedBy: thing, at: place, stack) }
    }

    /// The owners of the lock that a worker waits for.
    func lock(awaitedBy threadID: Int32, _ stack: CapturedStack) -> LockFinding? {
        counted(\.costs) { stackSource.lock(awaitedBy: threadID, stack) }
    }

    private func counted<Found>(_ path: KeyPath<Found, [CapturedStack.Cost]>, _ capture: () -> Found?) -> Found? {
        let found = costs.meter.measure(capture) { $0?[keyPath: path] ?? [] }
        if let captures = found?[keyPath: path].count { ledger.update { $0.captures += captures } }
        return found
    }

    /// The stack that a thread copied when it ran again, if it had no processor when the stack was requested.
    func lateStack(of thing: WatchedThing, _ span: StallSpan) -> CapturedStack? {
        let found = costs.meter.measure(
            { stackSource.lateStack(of: thing, since: span.latestStart) },
            costs: { $0.map { [$0.cost] } ?? [] }
        )
        guard let found, let copied = found.copied, copied <= span.earliestEnd else { return nil }
        ledger.update { $0.captures += 1 }
        return found
    }
}

extension ThreadStacks {
    fileprivate var costs: [CapturedStack.Cost] { groups.flatMap { $0.threads.map(\.cost) } }
}

/// Keeps the watchdog's captures within the budget, and reports when it cannot. Confined to the watchdog's thread.
struct CostGuard: Sendable {
    private var budget: CostBudget
    private let limits: StallMonitor.CostLimits
    let meter: CostMeter
    private let notices: Mailbox<StallNotice>
    private let ledger: WatchdogLedger
    /// The fault that was reported and is not over yet.
    private var reported: StallMonitorError?

    init(
        limits: StallMonitor.CostLimits,
        meter: CostMeter,
        notices: Mailbox<StallNotice>,
        ledger: WatchdogLedger
    ) {
        (self.limits, self.meter, self.notices, self.ledger) = (limits, meter, notices, ledger)
        budget = CostBudget(limits, at: .now)
    }

    /// Updates the budget with what all threads have spent. Called once per look, and when a fault is over.
    mutating func update(at now: MonotonicInstant) {
        meter.spent(.watching)
        let before = budget.account
        let bill = meter.bill
        // At its own time, because the budget has filled since then: the last look may have been long ago.
        budget.charge(bill.spent, at: min(bill.time, now))
        budget.charge(bill.spent, at: now)
        let account = budget.account
        guard account != before else { return }
        ledger.update { $0.budget = account }
        report(account.state)
    }

    /// When to update the budget although there is no look, because the reported fault will be over. Nil without one.
    var recovery: MonotonicInstant? { reported == nil ? nil : budget.fullAt }

    /// Takes the stack of a stall if the budget permits. Otherwise the outcome says why there is none.
    mutating func detection(at now: MonotonicInstant, _ capture: () -> StackOutcome) -> StackOutcome {
        permits(.detection, at: now) ? measure(capture) : .unavailable(refusal)
    }

    /// Takes a sample if the budget permits.
    mutating func sample(at now: MonotonicInstant, _ capture: () -> StackOutcome) -> StackOutcome? {
        permits(.sample, at: now) ? measure(capture) : nil
    }

    private func measure(_ capture: () -> StackOutcome) -> StackOutcome {
        meter.measure(capture) { $0.captured.map { [$0.cost] } ?? [] }
    }

    /// Whether a stack may be taken now.
    mutating func permits(_ purpose: CostBudget.Purpose, at now: MonotonicInstant) -> Bool {
        defer { ledger.update { [account = budget.account] in $0.budget = account } }
        return budget.permits(purpose, at: now)
    }

    /// Why a stack may not be taken.
    var refusal: String {
        "No stack was taken: the monitor has used up its budget (\(Self.percent(limits.processorShare)) of a processor; "
            + "watched threads held for \(Self.percent(limits.heldShare)) of the time)."
    }

    private mutating func report(_ state: CostBudget.State) {
        switch state {
        case .stopped where reported == nil:
            let error = StallMonitorError(.capturesStopped, refusal)
            reported = error
            notices.add(.fault(error))
            notices.add(.checkpoint)
        case .full:
            guard let error = reported else { return }
            reported = nil
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
