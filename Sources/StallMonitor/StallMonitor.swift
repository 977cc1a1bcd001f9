import Locking
public import RunLoopKit
import StackCapture
// Re-exported so that a server can set `StallRule` without importing the module that decides about stalls.
@_exported public import StallDetection
import StallReports

/// Watches event loops of this process and reports each stall: which loop, since when, where in the code, and why.
///
///     let monitor = StallMonitor.start()
///     defer { monitor.stop() }
///
/// It has two threads at rest: the watchdog, which looks at the loops, and the reporter, which makes reports. Two more exist
/// while there is work for them: the writer, which waits for the disk, and the recorder, which keeps a record of ongoing stalls
/// that outlives the process. While every watched loop is at rest none of them runs, with two exceptions: a thread answers health
/// probes if ``Configuration/health`` is set, and the writer wakes once a minute while reports wait for a disk that refused them.
///
/// A fault of the monitor never stops the process: the monitor continues with what still works, and reports the fault once
/// (``StallEvent/fault(_:)``, or a line on standard error without a handler).
public final class StallMonitor: Sendable {
    /// The version in reports.
    public static let version = "0.1.0"

    let settings: ForkSafeMutex<Configuration>
    private var configuration: Configuration { settings.withLock { $0 } }
    let feed: EventFeed
    private let lifecycle = ForkSafeMutex(Lifecycle.idle)
    /// The watched loops, for other threads than the watchdog.
    private let index = WatchIndex()
    /// Each ends a search for loops that was begun at the start.
    private let searches = ForkSafeMutex<[@Sendable () -> Void]>([])
    private let generation = ForkGeneration.current
    private let ended = ForkSafeMutex<Figures?>(nil)
    private let endpoint = ForkSafeMutex<HealthEndpoint?>(nil)

    /// The states of a monitor. Orders to the watchdog are given under the lock, so that none comes after `stop`.
    private enum Lifecycle: Sendable {
        /// Switched off, or without the threads it needs.
        case idle
        case disarmed(StallMonitorError)
        case running(Engine, watches: Int)
        case stopped
    }

    private init(_ configuration: Configuration, _ feed: EventFeed) {
        settings = ForkSafeMutex(configuration)
        self.feed = feed
    }

    /// Starts watching. Any thread; returns at once. The monitor runs until ``stop()``, even if nobody keeps a reference to it.
    ///
    /// - Parameters:
    ///   - configuration: The defaults suit a server.
    ///   - selection: What to watch; by default the main loop, which also runs the main queue and the main actor.
    ///   - onEvent: Called on the reporter's thread for each stall that begins, grows and ends, and for each fault. Only the
    ///     fault that no thread could be started is reported on the calling thread.
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching selection: WatchSelection = .main,
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        let (configuration, rangeErrors) = configuration.broughtIntoRange()
        let feed = EventFeed(onEvent ?? StandardError.log)
        let monitor = StallMonitor(configuration, feed)
        guard configuration.enabled else {
            feed.finish()
            return monitor
        }
        do throws(StallMonitorError) {
            let engine = try Engine(configuration, feed.send)
            engine.allowStart(configuration.startupGrace)
            for error in rangeErrors { engine.notices.add(.fault(StallMonitorError(error))) }
            monitor.lifecycle.withLock { $0 = .running(engine, watches: 0) }
            monitor.watch(selection)
            if let health = configuration.health { monitor.openEndpoint(health, engine) }
        } catch {
            monitor.lifecycle.withLock { $0 = .disarmed(error) }
            feed.send(.fault(error))
            feed.finish()
        }
        return monitor
    }

    /// Starts watching these loops. See ``start(_:watching:onEvent:)-(_,WatchSelection,_)``.
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching loops: [any WatchableLoop],
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        start(configuration, watching: .loops(loops), onEvent: onEvent)
    }

    /// Adds to what is watched. Any thread. What cannot be watched is reported as a fault. Does nothing if the monitor does not
    /// run.
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
        if let length = configuration.reportsJobsLongerThan {
            // It needs its own name, because the record sums watches with the same name.
            let jobs = WatchName(type: .taskPool, label: name.label + ", long jobs")
            let long = (rule ?? configuration.rule).forJobs(longerThan: length)
            do throws(StallMonitorError) {
                let thing = WatchedThing.job(OldestJob(of: pool))
                watch.jobs = try self.watch(thing, jobs, long, long, slowness: watch.slowness).number
                // Found by its pool, it pauses and cancels both watches.
                if watch.watchdog != nil { index.enter(watch, of: pool) }
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
        _ general: StallRule,
        slowness shared: ExpectedSlowness? = nil
    ) throws(StallMonitorError) -> Watch {
        guard generation.isCurrent else { return .nobody(name) }
        let rule = own ?? general
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
                    throw StallMonitorError(.loopAlreadyWatched)
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
            if reportsEnd || error.code != .loopEnded { engine.notices.add(.fault(error)) }
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

    /// Ends each search once.
    private func endSearches() {
        let ends = searches.withLock { searches in
            defer { searches = [] }
            return searches
        }
        for end in ends { end() }
    }

    /// Ends the monitoring: closes the reports of ongoing stalls, writes the run record, ends the threads and restores the
    /// capture signal's handler. Any thread except one that runs a handler of the monitor. Further calls have no effect, and return
    /// at once even if the first one still waits.
    ///
    /// Waits at most 5 s for a disk or a handler that does not return, and leaves behind what it cannot end. Reports that a
    /// failing disk does not take are lost, which is reported as a fault.
    ///
    /// In a fork's child there is nothing to end: it only detaches the monitor from the loops, so that a new one can watch them.
    public func stop() {
        guard generation.isCurrent else { return index.leaveAll() }
        endSearches()
        let engine: Engine? = lifecycle.withLock { lifecycle in
            guard case .running(let engine, _) = lifecycle else { return nil }
            lifecycle = .stopped
            engine.watchdog.give(.stop)
            return engine
        }
        // The first call is going to send the last events.
        guard let engine else { return }
        engine.end(by: .now + .seconds(5))
        let figures = engine.figures(isOver: true)
        ended.withLock { $0 = figures }
        takeEndpoint()?.end(by: .now + .seconds(1))
        feed.finish()
    }

    /// Answers probes from now on. If that is not possible, the monitor still watches.
    private func openEndpoint(_ options: Configuration.HealthOptions, _ engine: Engine) {
        do throws(StallMonitorError) {
            // This must not refer to the monitor itself: a server may keep no reference to it.
            let opened = try HealthEndpoint(options) { [feed] in
                HealthAnswer(Health(engine, feed), failsAfter: options.failsAfter)
            }
            endpoint.withLock { $0 = opened }
        } catch {
            engine.notices.add(.fault(error))
        }
    }

    private func takeEndpoint() -> HealthEndpoint? {
        endpoint.withLock { endpoint in
            defer { endpoint = nil }
            return endpoint
        }
    }

    /// The port where health probes are answered, if ``Configuration/health`` is set. Nil if no port is open. Any thread.
    public var healthPort: Int? { generation.isCurrent ? endpoint.withLock { $0?.port } : nil }

    /// The monitor's events from now on until it is stopped. The handler gets them too:
    ///
    ///     for await event in monitor.events() {
    ///         if case .ended(let report) = event { … }
    ///     }
    ///
    /// Any thread. Each call returns a separate sequence for one iteration; leaving the `for` loop ends it.
    ///
    /// - Parameter newest: How many events are kept for a slow reader. Beyond that the oldest are dropped. At least 1.
    public func events(keeping newest: Int = 256) -> AsyncStream<StallEvent> { feed.makeStream(keeping: newest) }

    /// Whether the monitor looks for stalls; also true while it is paused. False in a fork's child. Any thread.
    public var isRunning: Bool {
        guard generation.isCurrent else { return false }
        return lifecycle.withLock { if case .running = $0 { true } else { false } }
    }

    /// Calls `done` on the reporter's thread once everything that ended before the call was reported. Any thread; returns at
    /// once. Never calls it if the monitor does not run, ends meanwhile, or is too far behind.
    package func settle(_ done: @escaping @Sendable () -> Void) { engine?.watchdog.give(.settle(done)) }

    /// The counts at the end. Nil before the end.
    var lastFigures: Figures? { generation.isCurrent ? ended.withLock { $0 } : nil }

    /// Why the monitor does not look for stalls although it was started: `threadNotStarted`, or `forked` in a fork's child. Nil
    /// while it watches, when it is switched off, and after ``stop()``. Any thread.
    public var disarmed: StallMonitorError? {
        guard generation.isCurrent else { return StallMonitorError(.forked) }
        return lifecycle.withLock { if case .disarmed(let error) = $0 { error } else { nil } }
    }

    /// The latest watch of a loop. Gives access to the watches that ``start(_:watching:onEvent:)-(_,WatchSelection,_)`` began.
    /// Nil if there is none. Any thread.
    public func watch(of loop: any WatchableLoop) -> Watch? {
        generation.isCurrent ? index.watch(of: loop.heartbeat) : nil
    }

    /// The latest watch of a task pool. Nil if there is none. Any thread.
    public func watch(of pool: TaskPoolHeartbeat) -> Watch? {
        generation.isCurrent ? index.watch(of: pool) : nil
    }

    /// The running engine. Nil before the start, after the end, and in a fork's child.
    var engine: Engine? {
        guard generation.isCurrent else { return nil }
        return lifecycle.withLock { if case .running(let engine, _) = $0 { engine } else { nil } }
    }
}

extension StallMonitor {
    /// A watched loop or task pool.
    public struct Watch: Sendable {
        let watchdog: Watchdog?
        let number: Int
        let name: WatchName
        let slowness: ExpectedSlowness?
        /// For a pool: the watch of its jobs one by one, if they are watched.
        var jobs: Int?

        /// A watch of a monitor that does not run.
        static func nobody(_ name: WatchName) -> Watch { Watch(watchdog: nil, number: 0, name: name, slowness: nil) }

        /// Stops watching the loop, and closes its stall. Any thread; returns at once. The loop can be watched again once the
        /// watchdog has done so.
        public func cancel() {
            watchdog?.give(.cancel(number))
            if let jobs { watchdog?.give(.cancel(jobs)) }
        }
    }
}
