import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import Synchronization

/// Takes the stacks of watched threads.
struct StackSource: Sendable {
    /// Nil if stacks cannot be taken, for the reason in `problem`.
    let capturer: StackCapturer?
    /// Whether to find out who holds a lock that a thread waits for.
    var followsLocks = true
    private let problem: String
    /// Whether the other threads are captured too when a loop stalls.
    var capturesAllThreads = false
    /// The thread that ends the monitor.
    let stopper = Stopper()

    /// Installs the signal's handler. If that is refused, stalls are reported without stacks, and `tell` is called with the
    /// reason.
    init(signal: Int32, tell: (StallMonitorError) -> Void) {
        do throws(CaptureError) {
            capturer = try StackCapturer(signal: signal)
            problem = ""
        } catch {
            capturer = nil
            problem = Self.problem(of: error)
            tell(StallMonitorError(.captureUnavailable, problem))
        }
    }

    private static func problem(of error: CaptureError) -> String {
        // The handler of anybody else would not refuse ours; it is noticed later, when it does not pass signals on.
        guard error.code == .signalInUse else { return error.description }
        return "\(error.code.name): another monitor, or a StackCapturer, of this process has the signal: "
            + "stop that one first, or set another captureSignal"
    }

    /// The stacks of the other threads. Takes at most `time`, during which no loop is looked at.
    func otherThreads(than stalled: Int32?, within time: Duration) -> ThreadStacks? {
        guard let capturer else { return nil }
        return try? capturer.captureAll(except: stalled.map { [$0] } ?? [], within: time).get()
    }

    /// The outcome if stacks cannot be taken.
    var stackless: StackOutcome { .unavailable(problem) }

    /// The stack of the loop's thread. `raced` if the loop had moved on before the stack was taken, or had come to end the monitor.
    func stack(of loop: WatchedThing, at place: LoopPlace) -> StackOutcome {
        guard let capturer else { return stackless }
        guard let thread = loop.thread else { return .unavailable("The loop's thread is not known.") }
        let result =
            thread.stack.isEmpty
            ? capturer.capture(threadID: thread.id)
            : capturer.capture(threadID: thread.id, stack: thread.stack, since: place.since?.nanoseconds)
        return loop.heartbeat.isStill(at: place) && !stopper.isThread(thread.id) ? StackOutcome(result) : .raced
    }

    /// The stack that the loop's thread copied when it ran again, if it had no processor when its stack was requested.
    func lateStack(of loop: WatchedThing, since: MonotonicInstant) -> CapturedStack? {
        guard let capturer, let thread = loop.thread else { return nil }
        return capturer.lateCapture(threadID: thread.id, since: since.nanoseconds)
    }
}

extension StackSource {
    /// The thread that waits in `stop()`. Its stack shows that wait, and not what has stalled it.
    final class Stopper: Sendable {
        private let threadID = Atomic<Int32>(0)

        /// Called by that thread before it orders the end.
        func set() { threadID.store(StackCapturer.callingThread, ordering: .sequentiallyConsistent) }

        /// Asked after a stack was taken, because the thread may have come to its wait meanwhile.
        func isThread(_ id: Int32) -> Bool { threadID.load(ordering: .sequentiallyConsistent) == id }
    }

    /// Where the thread of a captured stack waits. Nil if it was not asleep in a system call. The watchdog's thread.
    func waitSite(of stack: CapturedStack, threadID: Int32?) -> WaitSite? {
        guard let call = stack.systemCall else { return nil }
        let state = threadID.flatMap { ThreadEvidence.read(threadID: $0) }?.state
        return WaitSite(call, state: state) { capturer?.readMemory(at: $0, count: $1) }
    }

    /// The owners of the lock that the loop's thread waits for, if its stack was just captured in such a wait and the loop has not
    /// moved since.
    func lock(awaitedBy loop: WatchedThing, at place: LoopPlace, _ stack: StackOutcome) -> LockFinding? {
        guard let thread = loop.thread, let captured = stack.captured else { return nil }
        let finding = lock(awaitedBy: thread.id, captured)
        return loop.heartbeat.isStill(at: place) ? finding : nil
    }
}

// MARK: - Workers of a pool

extension StackSource {
    /// The stack of a worker. `raced` if it had left the job before the stack was taken, or had come to end the monitor.
    func stack(of job: TaskPoolHeartbeat.RunningJob, in pool: TaskPoolHeartbeat) -> StackOutcome {
        guard let capturer else { return stackless }
        let result = capturer.capture(threadID: job.threadID)
        let isThere = pool.runningJobs?.contains(job) == true && !stopper.isThread(job.threadID)
        return isThere ? StackOutcome(result) : .raced
    }

    /// The owners of the lock that a thread waits for, if its stack was just captured in such a wait.
    func lock(awaitedBy threadID: Int32, _ stack: CapturedStack) -> LockFinding? {
        guard followsLocks, let capturer else { return nil }
        return LockProbe(capturer: capturer).follow(threadID, capturedIn: stack.systemCall)
    }
}

/// Where a loop was seen.
struct LoopPlace: Hashable, Sendable {
    var pulse: LoopHeartbeat.Pulse
    /// The number of callouts that had begun, for a loop that does not move. Nil for a loop that moves.
    var callouts: UInt64?
    /// Since when it has been there, if known. A stack taken at any time since then is valid.
    var since: MonotonicInstant?
}

extension WatchedHeartbeat {
    func isStill(at place: LoopPlace) -> Bool {
        pulse == place.pulse && place.callouts.map { calloutCount == $0 } ?? true
    }
}

// MARK: - Within the budget

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
    func otherThreads(than thread: Int32?, within time: Duration) -> ThreadStacks? {
        counted(\.costs) { stackSource.otherThreads(than: thread, within: time) }
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
