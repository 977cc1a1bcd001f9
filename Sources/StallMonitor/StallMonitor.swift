import Locking
public import RunLoopKit
import StackCapture
// A server says when a loop counts as stalled (`StallRule`) without importing the module that decides it.
@_exported public import StallDetection
import StallReports

/// Watches event loops of this process, and reports each stall: which loop, since when, where in the code, and why.
///
///     let monitor = StallMonitor.start()
///     defer { monitor.stop() }
///
/// It has two threads at rest: the watchdog, which looks at the loops, and the reporter, which makes reports. Two more exist while there
/// is work for them: the writer, which waits for the disk, and the recorder, which keeps a record of present stalls that outlives
/// the process. While every watched loop is at rest none of them runs, with two exceptions: a thread answers health probes if
/// ``Configuration/health`` asks for it, and the writer wakes once a minute while reports wait for a disk that refused them.
///
/// A fault of the monitor never stops the process: it goes on with what still works, and says so once
/// (``StallEvent/fault(_:)``, or a line on standard error where there is no handler).
public final class StallMonitor: Sendable {
    /// The version in reports.
    public static let version = "0.1.0"

    let settings: ForkSafeMutex<Configuration>
    private var configuration: Configuration { settings.withLock { $0 } }
    let feed: EventFeed
    private let lifecycle = ForkSafeMutex(Lifecycle.idle)
    /// The watched loops, for other threads than the watchdog.
    private let index = WatchIndex()
    /// Ends the searches for loops that were begun at the start.
    private let searches = ForkSafeMutex<[@Sendable () -> Void]>([])
    private let generation = ForkGeneration.current
    private let ended = ForkSafeMutex<Figures?>(nil)
    private let endpoint = ForkSafeMutex<HealthEndpoint?>(nil)

    /// The states of a monitor. Orders to the watchdog are given under the lock, so that none follows `stop`.
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

    /// Starts to watch. Any thread; returns at once.
    ///
    /// - Parameters:
    ///   - configuration: the defaults suit a server.
    ///   - selection: what to watch; by default the main loop, which also runs the main queue and the main actor.
    ///   - onEvent: called on the reporter's thread for each stall that begins, grows and ends, and for each fault. Only the
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

    /// Starts to watch these loops. See ``start(_:watching:onEvent:)-(_,WatchSelection,_)``.
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching loops: [any WatchableLoop],
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        start(configuration, watching: .loops(loops), onEvent: onEvent)
    }

    /// Watches more than at the start. Any thread. What cannot be watched is reported as a fault. Does nothing if the monitor
    /// does not run.
    public func watch(_ selection: WatchSelection) {
        guard let engine else { return }
        for thing in selection.things { watchOrReport(thing, engine) }
        for search in selection.searches { begin(search, engine) }
    }

    /// Watches one more loop. Any thread. Does nothing if the monitor is switched off or disarmed.
    ///
    /// - Parameters:
    ///   - label: the name in reports; by default the loop's own label.
    ///   - rule: when it counts as stalled; by default the configuration's rule.
    /// - Throws: `loopAlreadyWatched`, `loopEnded`, `configurationOutOfRange` for the rule, or `stopped` after ``stop()``.
    @discardableResult
    public func watch(
        _ loop: any WatchableLoop,
        label: String? = nil,
        rule: StallRule? = nil
    ) throws(StallMonitorError) -> Watch {
        try watch(.loop(loop), WatchName(type: loop.type, label: label ?? loop.label), rule, configuration.rule)
    }

    /// Watches a task pool. It is stalled when as many workers as it is wide are in one job each for the threshold. Any thread.
    /// Does nothing if the monitor is switched off or disarmed.
    ///
    /// - Parameters:
    ///   - label: the name in reports; by default the pool's own label.
    ///   - rule: its tick and its threshold; by default the configuration's rule. The parts for repeated and congested stalls do
    ///     not apply: a pool in which jobs come and go works, however long they are.
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
            // Under a name of its own: the record adds up watches with the same name.
            let jobs = WatchName(type: .taskPool, label: name.label + ", long jobs")
            let rule = rule ?? configuration.rule
            // Within the rule's bounds, so that the length fits into an integer.
            let ticks = Int(min(max((length / rule.tick).rounded(.up), 1), 10_000))
            let long = StallRule(tick: rule.tick, ticks: ticks, repeated: nil, congested: nil)
            do throws(StallMonitorError) {
                watch.jobs = try self.watch(.job(OldestJob(of: pool)), jobs, long, long).number
            } catch {
                // Its watch is not returned, so it cannot be cancelled.
                watch.cancel()
                throw error
            }
        }
        return watch
    }

    /// - Parameter own: the watch's own rule. Nil: the general one, also where that changes later.
    private func watch(
        _ thing: WatchedThing,
        _ name: WatchName,
        _ own: StallRule?,
        _ general: StallRule
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
                let slowness = ExpectedSlowness(ledger: engine.ledger)
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

    /// A loop that has ended by now did not exist for long enough to matter.
    private func watchFound(_ thing: WatchedThing, _ engine: Engine) {
        if !thing.heartbeat.hasEnded { watchOrReport(thing, engine, reportsEnd: false) }
    }

    /// Watches the loops that the search finds, now and later.
    private func begin(_ search: LoopSearch, _ engine: Engine) {
        do throws(StallMonitorError) {
            let end = try search.discovery.begin { [weak self] finding in
                switch finding {
                case .fault(let fault): engine.notices.add(.fault(fault))
                case .loop(let loop): if search.isWanted(loop) { self?.watchFound(.loop(loop), engine) }
                case .pool(let pool): self?.watchFound(.pool(pool), engine)
                }
            }
            searches.withLock { $0.append(end) }
            // The monitor may have been stopped meanwhile, and have ended the searches that it knew of.
            if !isRunning { endSearches() }
        } catch {
            engine.notices.add(.fault(error))
        }
    }

    /// Runs each of them once.
    private func endSearches() {
        let ends = searches.withLock { searches in
            defer { searches = [] }
            return searches
        }
        for end in ends { end() }
    }

    /// Ends the monitoring: closes the reports of present stalls, writes the run record, ends the threads and restores the
    /// capture signal's handler. Any thread but a handler's. Further calls have no effect.
    ///
    /// Waits at most 5 s for a disk or a handler that does not return, and leaves behind what it cannot end. Reports that a
    /// failing disk does not take are lost, which is reported as a fault.
    ///
    /// In a fork's child there is nothing to end: it detaches the monitor from the loops, so that a new one can watch them.
    public func stop() {
        guard generation.isCurrent else { return index.leaveAll() }
        endSearches()
        let engine: Engine? = lifecycle.withLock { lifecycle in
            guard case .running(let engine, _) = lifecycle else { return nil }
            lifecycle = .stopped
            engine.watchdog.give(.stop)
            return engine
        }
        if let engine {
            engine.end(by: .now + .seconds(5))
            let figures = engine.figures(isOver: true)
            ended.withLock { $0 = figures }
        }
        takeEndpoint()?.end(by: .now + .seconds(1))
        feed.finish()
    }

    /// Answers probes from now on. If that is not possible the monitor still watches.
    private func openEndpoint(_ options: Configuration.HealthOptions, _ engine: Engine) {
        do throws(StallMonitorError) {
            // Without a reference to the monitor itself: a server may keep none.
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

    /// The address where health probes are answered, if ``Configuration/health`` asks for it. Nil where no port is open. Any
    /// thread.
    public var healthPort: Int? { generation.isCurrent ? endpoint.withLock { $0?.port } : nil }

    /// The monitor's events from now on until it is stopped, in addition to the handler:
    ///
    ///     for await event in monitor.events() {
    ///         if case .ended(let report) = event { … }
    ///     }
    ///
    /// Any thread. Each call gives a sequence of its own, for one iteration; leaving the loop ends it.
    ///
    /// - Parameter newest: how many events are kept for a slow reader. Beyond that the oldest are dropped. At least 1.
    public func events(keeping newest: Int = 256) -> AsyncStream<StallEvent> { feed.makeStream(keeping: newest) }

    /// Whether stalls are being looked for; also true while monitoring is paused. False in a fork's child. Any thread.
    public var isRunning: Bool {
        guard generation.isCurrent else { return false }
        return lifecycle.withLock { if case .running = $0 { true } else { false } }
    }

    /// Calls `done` on the reporter's thread once everything that ended before the call was reported. Any thread; returns at
    /// once. Never calls it if the monitor does not run, ends meanwhile, or is too far behind.
    package func settle(_ done: @escaping @Sendable () -> Void) { engine?.watchdog.give(.settle(done)) }

    /// The counts at the end. Nil before.
    var lastFigures: Figures? { generation.isCurrent ? ended.withLock { $0 } : nil }

    /// Why no stalls are looked for though the monitor was started: `threadNotStarted`, or `forked` in a fork's child. Nil while
    /// it watches, when it is switched off, and after ``stop()``. Any thread.
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
