import Locking
import RunLoopKit

/// Watches event loops of this process and reports each stall: which loop, since when, where in the code, and why.
///
///     let monitor = StallMonitor.start()
///     defer { monitor.stop() }
///
/// It has two threads at rest: the watchdog, which looks at the loops, and the reporter, which makes reports. Two more exist
/// while there is work for them: the writer, which waits for the disk, and the recorder, which keeps a record of ongoing stalls
/// that outlives the process. While every watched loop is at rest none of them runs, with three exceptions:
/// - if ``Configuration/health`` is set, a further thread answers health probes;
/// - while reports wait for a disk that refused them, the writer wakes once a minute;
/// - if the watchdog has reported that it takes no stacks, it wakes once to report that it takes them again.
///
/// A fault of the monitor never stops the process: the monitor continues with what still works, and reports the fault once
/// (``StallEvent/fault(_:)``, or a line on standard error without a handler).
public final class StallMonitor: Sendable {
    /// The version in reports.
    public static let version = "0.1.0"

    let settings: ForkSafeMutex<Configuration>
    var configuration: Configuration { settings.withLock { $0 } }
    let feed: EventFeed
    let lifecycle = ForkSafeMutex(Lifecycle.idle)
    /// The watched loops, for other threads than the watchdog.
    let index = WatchIndex()
    /// Each ends a search for loops that was begun at the start.
    let searches = ForkSafeMutex<[@Sendable () -> Void]>([])
    let generation = ForkGeneration.current
    /// What was out of range in the latest configuration.
    let rangeFaults = ForkSafeMutex<[StallMonitorError]>([])
    private let ended = ForkSafeMutex<Figures?>(nil)
    private let endpoint = ForkSafeMutex<HealthEndpoint?>(nil)

    /// The states of a monitor. Orders to the watchdog are given under the lock, so that none comes after `stop`.
    enum Lifecycle: Sendable {
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
    ///   - onEvent: Called on the reporter's thread for each stall that begins, grows and ends, and for each fault. Without a reporter,
    ///     because no thread could be started or the monitor is switched off, a fault is reported on the calling thread.
    @discardableResult
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching selection: WatchSelection = .main,
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        let (configuration, rangeErrors) = configuration.broughtIntoRange()
        let feed = EventFeed(onEvent ?? StandardError.log)
        let monitor = StallMonitor(configuration, feed)
        guard configuration.enabled else {
            monitor.openEndpoint { Health(StallMonitorError(.switchedOff)) }
            feed.finish()
            return monitor
        }
        do throws(StallMonitorError) {
            let engine = try Engine(configuration, feed.send)
            engine.allowStart(configuration.wholeStartupGrace)
            monitor.report(rangeErrors, engine)
            monitor.lifecycle.withLock { $0 = .running(engine, watches: 0) }
            monitor.watch(selection)
            // This must not refer to the monitor itself: a server may keep no reference to it.
            monitor.openEndpoint { Health(engine, feed) }
        } catch {
            monitor.lifecycle.withLock { $0 = .disarmed(error) }
            feed.send(.fault(error))
            monitor.openEndpoint { Health(error) }
            feed.finish()
        }
        return monitor
    }

    /// Starts watching these loops. See ``start(_:watching:onEvent:)-(_,WatchSelection,_)``.
    @discardableResult
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching loops: [any WatchableLoop],
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        start(configuration, watching: .loops(loops), onEvent: onEvent)
    }

    /// Ends each search once.
    func endSearches() {
        for end in searches.withLock({ $0.take() }) { end() }
    }

    /// Ends the monitoring: closes the reports of ongoing stalls, writes the run record, ends the threads and restores the
    /// capture signal's handler. Any thread except one that runs a handler of the monitor. Further calls have no effect, and return
    /// at once even if the first one still waits.
    ///
    /// Waits at most 5 s for a disk or a handler that does not return, and leaves behind what it cannot end. Time in which the whole
    /// process is stopped (SIGSTOP) does not count. Reports that a failing disk does not take are lost, which is reported as a fault.
    ///
    /// In a fork's child there is nothing to end: it only detaches the monitor from the loops, so that a new one can watch them.
    public func stop() {
        guard generation.isCurrent else { return index.leaveAll() }
        let former: Lifecycle = lifecycle.withLock { lifecycle in
            let former = lifecycle
            if case .running(let engine, _) = former {
                lifecycle = .stopped
                engine.orderEnd()
            }
            return former
        }
        // Not before: a search that another thread begins at this moment is known here, or finds that the monitor has stopped.
        endSearches()
        switch former {
        // The first call is going to send the last events.
        case .stopped: return
        case .idle, .disarmed: endEndpoint()
        case .running(let engine, _):
            engine.end()
            let figures = engine.figures(isOver: true)
            ended.withLock { $0 = figures }
            endEndpoint()
            feed.finish()
        }
    }

    private func endEndpoint() { endpoint.withLock { $0.take() }?.end(within: .seconds(1)) }

    /// Answers probes from now on, if so configured: also while nothing is watched, because a supervisor whose probes are not answered
    /// restarts the server. If that is not possible, the monitor still watches.
    private func openEndpoint(_ health: @escaping @Sendable () -> Health) {
        guard let options = configuration.health else { return }
        do throws(StallMonitorError) {
            let opened = try HealthEndpoint(options) { HealthAnswer(health(), failsAfter: options.failsAfter) }
            endpoint.withLock { $0 = opened }
        } catch {
            if let engine { engine.notices.add(.fault(error)) } else { feed.send(.fault(error)) }
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
    /// Any thread. Each call returns a separate sequence for one iteration; leaving the `for` loop ends it. In a fork's child it is
    /// empty.
    ///
    /// - Parameter newest: How many events are kept for a slow reader. Beyond that the oldest are dropped. At least 1.
    public func events(keeping newest: Int = 256) -> AsyncStream<StallEvent> {
        // There the lock of the feed may be held forever, and nothing would end the sequence.
        generation.isCurrent ? feed.makeStream(keeping: newest) : AsyncStream { $0.finish() }
    }

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

    /// The running engine. Nil before the start, after the end, and in a fork's child.
    var engine: Engine? {
        guard generation.isCurrent else { return nil }
        return lifecycle.withLock { if case .running(let engine, _) = $0 { engine } else { nil } }
    }
}
