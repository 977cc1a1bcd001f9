public import RunLoopKit
import StackCapture
import StallReports

/// Watches event loops of this process, and reports each stall: what stood still, since when, where in the code, and why.
///
///     let monitor = StallMonitor.start()
///     defer { monitor.stop() }
///
/// It runs four threads: the watchdog, which looks, the reporter, which names and tells, the writer, which waits for the disk, and the
/// recorder, which keeps a record of the stalls under way that outlives the process. While every watched loop is at rest none of them
/// runs, unless reports wait for a disk that refused them: then the writer tries it again, at last once a minute.
/// A fault of the monitor never stops the process: it goes on with what still works, and says so
/// once (``StallEvent/fault(_:)``, or a line on standard error where there is no handler).
public final class StallMonitor: Sendable {
    /// The version that reports name.
    public static let version = "0.1.0"

    private let configuration: Configuration
    private let lifecycle = ForkSafeMutex(Lifecycle.idle)
    /// The loops under watch, for what is asked of them by others than the watchdog.
    private let index = WatchIndex()
    private let generation = ForkGeneration.current

    /// What can be done with a monitor. Orders to the watchdog are given under the lock, so that none comes after `stop`.
    private enum Lifecycle: Sendable {
        /// Switched off, or without the threads it needs.
        case idle
        case disarmed(StallMonitorError)
        case running(Engine, watches: Int)
        case stopped
    }

    private init(_ configuration: Configuration) {
        self.configuration = configuration
    }

    /// Starts to watch. Any thread; returns at once.
    ///
    /// - Parameters:
    ///   - configuration: see there; the defaults suit a server.
    ///   - loops: what to watch from the start: the main loop, which also runs the main queue and the main actor.
    ///   - onEvent: called on the reporter's thread for each stall that begins, grows and ends, and for each fault. Only the
    ///     fault that no thread could be started is told on the calling thread.
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching loops: [any WatchableLoop] = [EventRunLoop.main],
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        let monitor = StallMonitor(configuration)
        let tell = onEvent ?? StandardError.tell
        guard configuration.isEnabled else { return monitor }
        do throws(StallMonitorError) {
            let engine = try Engine(configuration, tell)
            engine.allowStart(configuration.startupGrace)
            monitor.lifecycle.withLock { $0 = .running(engine, watches: 0) }
            for loop in loops { monitor.watchOrTell(loop, engine) }
        } catch {
            monitor.lifecycle.withLock { $0 = .disarmed(error) }
            tell(.fault(error))
        }
        return monitor
    }

    /// Watches one more loop. Any thread. With a monitor that is switched off or disarmed it does nothing.
    ///
    /// - Parameters:
    ///   - label: what reports call it; the loop's own label unless given.
    ///   - rule: when it counts as stalled; the configuration's rule unless given.
    /// - Throws: `loopAlreadyWatched`, `loopEnded`, or `stopped` after ``stop()``.
    @discardableResult
    public func watch(
        _ loop: any WatchableLoop,
        label: String? = nil,
        rule: StallRule? = nil
    ) throws(StallMonitorError) -> Watch {
        let name = WatchName(type: .runLoop, label: label ?? loop.label)
        guard generation.isCurrent else { return .nobody(name) }
        return try lifecycle.withLock { lifecycle throws(StallMonitorError) in
            switch lifecycle {
            case .idle, .disarmed: return .nobody(name)
            case .stopped: throw StallMonitorError(.stopped)
            case .running(let engine, let watches):
                guard !loop.heartbeat.hasEnded else { throw StallMonitorError(.loopEnded) }
                let bell = engine.watchdog.bells.makeBell(for: engine.watchdog)
                guard loop.heartbeat.attach(bell) else {
                    engine.watchdog.bells.putAway(bell)
                    throw StallMonitorError(.loopAlreadyWatched)
                }
                let identity = WatchIdentity(number: watches + 1, name: name, since: .now)
                let slowness = ExpectedSlowness(ledger: engine.ledger)
                let scopes = [slowness] + engine.scopes
                engine.watchdog.give(.watch(identity, loop, rule ?? configuration.rule, bell, scopes))
                lifecycle = .running(engine, watches: watches + 1)
                let watch = Watch(watchdog: engine.watchdog, number: identity.number, name: name, slowness: slowness)
                index.enter(watch, of: loop.heartbeat)
                return watch
            }
        }
    }

    private func watchOrTell(_ loop: any WatchableLoop, _ engine: Engine) {
        do throws(StallMonitorError) {
            try watch(loop)
        } catch {
            engine.notices.add(.fault(error))
        }
    }

    /// Ends the watch: closes the report of a stall under way, writes the run record, ends the threads and gives the capture signal
    /// back. Reports that a failing disk does not take then are lost, which is told by a fault. Any thread but a handler's; once is enough. Waits 5 s at most for a disk or a handler that does not return:
    /// then it leaves what it cannot end.
    ///
    /// In a fork's child there is nothing to end: it takes the monitor off the loops, so that a new one can watch them.
    public func stop() {
        guard generation.isCurrent else { return index.leaveAll() }
        let engine: Engine? = lifecycle.withLock { lifecycle in
            guard case .running(let engine, _) = lifecycle else { return nil }
            lifecycle = .stopped
            engine.watchdog.give(.stop)
            return engine
        }
        engine?.end(by: .now + .seconds(5))
    }

    /// Whether stalls are being looked for; also true while monitoring is paused. False in a fork's child. Any thread.
    public var isRunning: Bool {
        guard generation.isCurrent else { return false }
        return lifecycle.withLock { if case .running = $0 { true } else { false } }
    }

    /// Why no stalls are looked for though the monitor was started: `threadNotStarted`, or `forked` in a fork's child. Nil while it
    /// watches, when it is switched off, and after ``stop()``. Any thread.
    public var disarmed: StallMonitorError? {
        guard generation.isCurrent else { return StallMonitorError(.forked) }
        return lifecycle.withLock { if case .disarmed(let error) = $0 { error } else { nil } }
    }

    /// The latest watch of a loop: the way to those that ``start(_:watching:onEvent:)`` began. Nil if there is none. Any thread.
    public func watch(of loop: any WatchableLoop) -> Watch? {
        generation.isCurrent ? index.watch(of: loop.heartbeat) : nil
    }

    /// What runs; nil before the start, after the end, and in a fork's child.
    var engine: Engine? {
        guard generation.isCurrent else { return nil }
        return lifecycle.withLock { if case .running(let engine, _) = $0 { engine } else { nil } }
    }
}

/// A loop under watch.
public struct Watch: Sendable {
    let watchdog: Watchdog?
    let number: Int
    let name: WatchName
    let slowness: ExpectedSlowness?

    /// A watch that nobody keeps.
    static func nobody(_ name: WatchName) -> Watch { Watch(watchdog: nil, number: 0, name: name, slowness: nil) }

    /// Has the watchdog stop watching the loop, and close a stall under way. Any thread; returns at once. The loop can be watched
    /// anew when the watchdog has done so.
    public func cancel() {
        watchdog?.give(.cancel(number))
    }
}
