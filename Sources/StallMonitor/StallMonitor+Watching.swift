import Locking
public import RunLoopKit
// Re-exported so that a server can set `StallRule` without importing the module that decides about stalls.
@_exported public import StallDetection
import StallReports
import Synchronization

// What is watched: loops and task pools that the server names, and those that a search finds.

extension StallMonitor {
    /// Adds to what is watched. Any thread. What cannot be watched is reported as a fault; what this monitor watches already stays as it is.
    /// Does nothing if the monitor does not run.
    public func watch(_ selection: WatchSelection) {
        guard let engine else { return }
        for thing in selection.things { watchOrReport(thing, engine) }
        for search in selection.searches { begin(search, engine) }
    }

    /// Watches one more loop. Any thread. Does nothing if the monitor is switched off or disarmed.
    ///
    /// - Parameters:
    ///   - label: The name in reports; by default the loop's own label.
    ///   - rule: When it counts as stalled; by default the configuration's rule.
    /// - Throws: `loopAlreadyWatched`, `loopEnded`, `configurationOutOfRange` for the rule, or `stopped` after ``stop()``.
    @discardableResult
    public func watch(
        _ loop: any WatchableLoop,
        label: String? = nil,
        rule: StallRule? = nil
    ) throws(StallMonitorError) -> Watch {
        try watch(.loop(loop), WatchName(type: loop.type, label: label ?? loop.label), rule, configuration.rule)
    }

    /// Watches a task pool. It is stalled when all its workers, as many as it is wide, have been in one job each for the
    /// threshold. Any thread. Does nothing if the monitor is switched off or disarmed.
    ///
    /// - Parameters:
    ///   - label: The name in reports; by default the pool's own label.
    ///   - rule: Its tick and its threshold; by default the configuration's rule. The parts for repeated and congested stalls do
    ///     not apply: a pool in which jobs begin and end is working, however long they are.
    /// - Throws: `loopAlreadyWatched`, `loopEnded` if the pool has ended, `configurationOutOfRange` for the rule, or `stopped`
    ///   after ``stop()``.
    @discardableResult
    public func watch(
        _ pool: TaskPoolHeartbeat,
        label: String? = nil,
        rule: StallRule? = nil
    ) throws(StallMonitorError) -> Watch {
        let name = WatchName(type: .taskPool, label: label ?? pool.label)
        var watch = try watch(.pool(pool), name, rule?.forPools, configuration.rule.forPools)
        if watch.watchdog != nil, let length = configuration.reportsJobsLongerThan {
            // It needs its own name, because the record sums watches with the same name.
            let jobs = WatchName(type: .taskPool, label: name.label + ", long jobs", isOfJobs: true)
            let long = (rule ?? configuration.rule).forJobs(longerThan: length)
            do throws(StallMonitorError) {
                let thing = WatchedThing.job(OldestJob(of: pool))
                watch.jobs = try self.watch(thing, jobs, long, long, slowness: watch.slowness).number
                // Found by its pool, it pauses and cancels both watches.
                index.enter(watch, of: pool)
            } catch {
                // Its watch is not returned, so it cannot be cancelled.
                watch.cancel()
                throw error
            }
        }
        return watch
    }

    /// - Parameters:
    ///   - own: The watch's own rule. Nil: the general one, even if that changes later.
    ///   - shared: The scopes of another watch that also cover this one. Nil: it has its own.
    private func watch(
        _ thing: WatchedThing,
        _ name: WatchName,
        _ own: StallRule?,
        _ general: @autoclosure () -> StallRule,
        slowness shared: ExpectedSlowness? = nil
    ) throws(StallMonitorError) -> Watch {
        // In a fork's child the lock of the configuration may be held forever.
        guard generation.isCurrent else { return .nobody(name) }
        let rule = own ?? general()
        if let error = rule.broughtIntoRange().errors.first { throw StallMonitorError(error) }
        return try lifecycle.withLock { lifecycle throws(StallMonitorError) in
            switch lifecycle {
            case .idle, .disarmed: return .nobody(name)
            case .stopped: throw StallMonitorError(.stopped)
            case .running(let engine, let watches):
                guard !thing.heartbeat.hasEnded else { throw StallMonitorError(.loopEnded) }
                let wakeFlag = engine.watchdog.wakeFlags.makeFlag(for: engine.watchdog)
                guard thing.heartbeat.attach(wakeFlag) else {
                    engine.watchdog.wakeFlags.remove(wakeFlag)
                    throw StallMonitorError(.loopAlreadyWatched, "It is \(name.label).")
                }
                let identity = WatchIdentity(
                    number: watches + 1,
                    name: name,
                    since: .now,
                    followsConfiguration: own == nil
                )
                let slowness = shared ?? ExpectedSlowness(ledger: engine.ledger)
                let scopes = [slowness] + engine.scopes
                engine.watchdog.give(.watch(identity, thing, rule, wakeFlag, scopes))
                lifecycle = .running(engine, watches: watches + 1)
                let watch = Watch(watchdog: engine.watchdog, number: identity.number, name: name, slowness: slowness)
                index.enter(watch, of: thing.heartbeat)
                return watch
            }
        }
    }

    private func watchOrReport(_ thing: WatchedThing, _ engine: Engine, reportsEnd: Bool = true) {
        do throws(StallMonitorError) {
            switch thing {
            case .loop(let loop): try watch(loop)
            case .pool(let pool): try watch(pool)
            case .job: break
            }
        } catch {
            // The monitor may have been stopped since this began.
            guard error.code != .stopped, reportsEnd || error.code != .loopEnded else { return }
            // Two selections, or two searches, may include the same loop.
            if error.code == .loopAlreadyWatched, index.watch(of: thing.heartbeat) != nil { return }
            engine.notices.add(.fault(error))
        }
    }

    /// Watches a loop that a search has found. If it has already ended, it did not exist for long enough to matter.
    private func watchFound(_ thing: WatchedThing, _ engine: Engine) {
        if !thing.heartbeat.hasEnded { watchOrReport(thing, engine, reportsEnd: false) }
    }

    /// Watches the loops that the search finds, now and later.
    private func begin(_ search: LoopSearch, _ engine: Engine) {
        do throws(StallMonitorError) {
            // Refers to the monitor until the search is ended: a server may keep no reference to it.
            let end = try search.discovery.begin { [self] finding in
                switch finding {
                case .fault(let fault): engine.notices.add(.fault(fault))
                case .loop(let loop): if search.isWanted(loop) { watchFound(.loop(loop), engine) }
                case .pool(let pool): watchFound(.pool(pool), engine)
                }
            }
            searches.withLock { $0.append(end) }
            // The monitor may have been stopped meanwhile, which ended only the searches that it knew of.
            if !isRunning { endSearches() }
        } catch {
            engine.notices.add(.fault(error))
        }
    }

    /// The latest watch of a loop. Gives access to the watches that ``start(_:watching:onEvent:)-(_,WatchSelection,_)`` began.
    /// Nil if there is none, or it was cancelled. Any thread.
    public func watch(of loop: any WatchableLoop) -> Watch? {
        generation.isCurrent ? index.watch(of: loop.heartbeat) : nil
    }

    /// The latest watch of a task pool. Nil if there is none, or it was cancelled. Any thread.
    public func watch(of pool: TaskPoolHeartbeat) -> Watch? {
        generation.isCurrent ? index.watch(of: pool) : nil
    }

    /// Stops looking at every loop, until ``resume()``. Ongoing stalls are closed as `abandoned`. While everything is paused the
    /// watchdog does not wake. Any thread; returns at once. A second pause has no further effect. The run record lists each
    /// pause, and its time does not count as watched. ``health`` is `degraded` meanwhile.
    public func pause() {
        engine?.watchdog.give(.pause(nil, .now))
    }

    /// Looks again at every loop whose own watch is not paused. Stalls count from now on. Any thread; returns at once.
    public func resume() {
        engine?.watchdog.give(.resume(nil, .now))
    }
}

extension StallMonitor {
    /// A watched loop or task pool.
    public struct Watch: Sendable {
        let watchdog: Watchdog?
        let number: Int
        let name: WatchName
        let slowness: ExpectedSlowness?
        /// All copies of the watch share it.
        let cancellation = Cancellation()
        /// For a pool: the watch of its jobs one by one, if they are watched.
        var jobs: Int?

        /// A watch of a monitor that does not run.
        static func nobody(_ name: WatchName) -> Watch { Watch(watchdog: nil, number: 0, name: name, slowness: nil) }

        /// Stops watching the loop, and closes its stall. Any thread; returns at once. The loop can be watched again once the
        /// watchdog has done so.
        public func cancel() {
            cancellation.isDone.store(true, ordering: .sequentiallyConsistent)
            watchdog?.give(.cancel(number))
            if let jobs { watchdog?.give(.cancel(jobs)) }
        }

        /// Stops looking at this loop, until ``resume()``. See ``StallMonitor/pause()``.
        public func pause() {
            for number in [number, jobs].compactMap({ $0 }) { watchdog?.give(.pause(number, .now)) }
        }

        /// Looks at this loop again, unless the whole monitor is paused. Any thread; returns at once.
        public func resume() {
            for number in [number, jobs].compactMap({ $0 }) { watchdog?.give(.resume(number, .now)) }
        }
    }
}

/// Whether a watch was cancelled.
final class Cancellation: Sendable {
    let isDone = Atomic(false)
}

/// The watches by loop. Keeps no loop alive.
final class WatchIndex: Sendable {
    private struct Entry: Sendable {
        weak let heartbeat: (any WatchedHeartbeat)?
        let watch: StallMonitor.Watch
    }

    private struct State: Sendable {
        var entries: [ObjectIdentifier: Entry] = [:]
        /// When there are this many entries, those of released loops are removed.
        var limit = 64
    }

    private let state = ForkSafeMutex(State())

    func enter(_ watch: StallMonitor.Watch, of heartbeat: any WatchedHeartbeat) {
        state.withLock { state in
            state.entries[ObjectIdentifier(heartbeat)] = Entry(heartbeat: heartbeat, watch: watch)
            guard state.entries.count > state.limit else { return }
            state.entries = state.entries.filter { $0.value.heartbeat?.hasEnded == false }
            state.limit = max(64, state.entries.count * 2)
        }
    }

    func watch(of heartbeat: any WatchedHeartbeat) -> StallMonitor.Watch? {
        let watch = state.withLock { state in
            state.entries[ObjectIdentifier(heartbeat)].flatMap { $0.heartbeat === heartbeat ? $0.watch : nil }
        }
        // A cancelled one stays in the index: until the watchdog has left the loop, a fork's child has to detach it.
        return watch.flatMap { $0.cancellation.isDone.load(ordering: .sequentiallyConsistent) ? nil : $0 }
    }

    /// Detaches the watcher from every loop in a fork's child. Locks may be held there forever; what they guard is left as it is.
    func leaveAll() {
        let heartbeats = state.withLockIfAvailable { $0.entries.values.compactMap(\.heartbeat) }
        heartbeats?.forEach { $0.detachInChild() }
    }
}
