import RunLoopKit
package import StackCapture
import StallDetection
import StallDiagnosis
package import StallReports
import Synchronization

/// Reports the stalls of other processes. The threads that handle stalls of this process's loops diagnose, name, write and pass
/// them to the handler in the same way. The caller does the watchdog's part.
///
/// For one thread at a time.
package final class OutsideReporter: Sendable {
    /// How stalls are reported.
    package struct Configuration: Sendable {
        package var directory: String
        /// Tick and threshold, for the reports.
        package var rule: StallRule
        package var repeats = RepeatRule()
        package var limits = ReportDirectory.Limits()
        /// More than a monitor inside a process may use. This process is no server. It also stops a thread for longer, because the thread
        /// stays stopped while this process waits for a processor.
        package var cost = StallMonitor.CostLimits(
            processorShare: 0.05,
            processorBurst: .seconds(30),
            heldShare: 0.005,
            heldBurst: .milliseconds(500)
        )
        /// The name of the run. Nil: the executable's.
        package var service: ServiceIdentity?

        package init(directory: String, rule: StallRule) {
            (self.directory, self.rule) = (directory, rule)
        }
    }

    private struct State {
        var loops: [Int: (identity: WatchIdentity, process: OutsideProcess)] = [:]
        var lastLoop = 0
        var lastStall = 0
        var open: [Int: OpenStall] = [:]
        var looks = 0
    }

    private struct OpenStall {
        var loop: Int
        var threadID: Int32
        var account: OutsideProcess.Account?
    }

    private let configuration: Configuration
    private let parts: EngineParts
    private let reporter: MonitorThread
    private let state = Mutex(State())
    private let costs: Mutex<CostGuard>

    /// Starts the threads of the reporter and of the writer.
    ///
    /// - Parameter tell: Called on the reporter's thread for each stall that begins, grows and ends, and for each fault.
    /// - Throws: `threadNotStarted`.
    package init(
        _ configuration: Configuration,
        tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        self.configuration = configuration
        var own = StallMonitor.Configuration(directory: configuration.directory)
        (own.rule, own.repeats, own.limits) = (configuration.rule, configuration.repeats, configuration.limits)
        own.cost = configuration.cost
        own.service = configuration.service
        let parts = EngineParts(own)
        self.parts = parts
        costs = Mutex(parts.makeCostGuard())
        reporter = try MonitorThread(name: "stall-reporter") { Reporter(parts, tell).run() }
        // The recorder stays: there is no watchdog here to start it again when the process ends.
        parts.startRecording(patience: nil)
    }

    /// Adds a loop or a task pool: from now on it counts as watched. Returns its number.
    package func enter(_ label: String, type: WatchedType = .eventLoop, of process: OutsideProcess) -> Int {
        let identity = state.withLock { state in
            state.lastLoop += 1
            let name = WatchName(type: type, label: label, service: process.service.name)
            let identity = WatchIdentity(number: state.lastLoop, name: name, since: .now)
            state.loops[identity.number] = (identity, process)
            return identity
        }
        parts.ledger.update { $0.watches[identity.number] = .init(name: identity.name, since: identity.since) }
        noteWatched()
        return identity.number
    }

    /// Ends the watching of a loop or pool. Close its stall before.
    package func leave(_ loop: Int) {
        state.withLock { $0.loops[loop] = nil }
        parts.ledger.update { $0.endWatch(loop, at: .now) }
        noteWatched()
    }

    /// Notes that a process is watched from now on.
    package func note(_ process: OutsideProcess) {
        parts.ledger.update { [identity = process.identity] counts in
            counts.targets.append(identity)
            counts.targets.removeFirst(max(0, counts.targets.count - 100))
        }
        parts.notices.add(.checkpoint)
    }

    /// Counts a look at this number of loops.
    package func looked(at loops: Int, late: Bool) {
        parts.ledger.update { counts in
            counts.looks += 1
            counts.loopLooks += loops
            counts.lateLooks += late ? 1 : 0
        }
        let (watched, isTime) = state.withLock { state in
            state.looks &+= 1
            return (state.loops.count, state.looks % 200 == 1)
        }
        parts.live.note(watched: watched, lastLook: .now)
        costs.withLock { $0.update(at: .now) }
        guard isTime else { return }
        parts.live.refresh()
        parts.notices.add(.checkpoint, mayBeDropped: true)
    }

    private func noteWatched() {
        parts.live.note(watched: state.withLock { $0.loops.count })
        parts.notices.add(.checkpoint)
    }

    /// Waits until everything is written, at most 5 s for a disk that does not answer, and ends the threads.
    ///
    /// - Returns: How many reports are lost.
    @discardableResult
    package func close() -> Int {
        parts.end(reporter)
        return parts.lostReports(isOver: true)
    }
}

// MARK: - Stalls

extension OutsideReporter {
    /// Takes a thread's stack if the budget permits, and counts the cost.
    ///
    /// - Parameters:
    ///   - patience: How long the capture may take.
    ///   - isSample: Whether it is one of several samples, which are given up first.
    ///   - judge: What the stack shows.
    package func capture(
        _ threadID: Int32,
        of process: OutsideProcess,
        within patience: Duration,
        isSample: Bool,
        _ judge: (CapturedStack) -> OutsideStack
    ) -> OutsideStack {
        let refusal = costs.withLock { costs in
            costs.permits(isSample ? .sample : .detection, at: .now) ? nil : costs.refusal
        }
        if let refusal { return .unavailable(refusal) }
        let result = parts.meter.measure {
            process.sampler.capture(threadID: threadID, within: patience)
        } costs: {
            (try? $0.get()).map { [$0.cost] } ?? []
        }
        switch result {
        case .success(let stack): return judge(stack)
        case .failure(let error): return .failed(error)
        }
    }

    /// Begins a stall, which is proven and ongoing. If its threads wait for locks, this also finds the locks' owners.
    ///
    /// - Returns: The stall's number. Nil if the loop was not added.
    package func begin(_ stall: OutsideStall) -> Int? {
        let found = state.withLock { state -> (Int, WatchIdentity, OutsideProcess)? in
            guard let loop = state.loops[stall.loop] else { return nil }
            state.lastStall += 1
            state.open[state.lastStall] = OpenStall(loop: stall.loop, threadID: stall.threadID, account: stall.account)
            return (state.lastStall, loop.identity, loop.process)
        }
        guard let (number, identity, process) = found else { return nil }
        let observation = StallObservation(stall, number, identity, configuration.rule, of: process, parts.meter)
        parts.ledger.update { [observation] counts in
            if let pool = observation.pool {
                counts.captures += pool.costs.count
            } else {
                counts.count(observation.stack)
            }
        }
        parts.live.begin(observation)
        parts.notices.add(.began(observation))
        return number
    }

    /// The stall continues. Cheap: only the live record is updated.
    package func see(_ number: Int, _ span: StallSpan) {
        parts.live.see(number, span, at: span.latestEnd)
    }

    /// Adds a later sample of the stalled thread, or of a pool's worker.
    package func add(_ sample: StackSample, to number: Int) {
        parts.ledger.update { $0.captures += 1 }
        parts.notices.add(.sampled(number, sample), mayBeDropped: true)
    }

    /// The turns of the stall so far, if it is a row of them.
    package func count(_ number: Int, _ turns: StallReport.BusyTime) { parts.notices.add(.counted(number, turns)) }

    /// The stall has grown enough to be reported again.
    package func grow(_ number: Int, _ span: StallSpan) {
        parts.notices.add(.grew(number, span), mayBeDropped: true)
    }

    /// The stall is over (`recovered`), its process has ended (`terminated`), or the loop is no longer watched (`abandoned`).
    package func end(_ number: Int, _ span: StallSpan, as ending: StallState) {
        guard let stall = state.withLock({ $0.open.removeValue(forKey: number) }) else { return }
        parts.live.end(number, span, as: ending)
        let evidence = ending == .terminated ? nil : evidence(of: stall, span)
        parts.notices.add(.ended(number, span, evidence, ending))
    }

    private func evidence(of stall: OpenStall, _ span: StallSpan) -> EvidenceWindow? {
        guard let account = stall.account, let process = state.withLock({ $0.loops[stall.loop]?.process }) else {
            return nil
        }
        let now = MonotonicInstant.now
        return process.window(since: account, threadID: stall.threadID, at: now, of: span)?
            .conclusive(readLateBy: now - span.earliestEnd)
    }
}
