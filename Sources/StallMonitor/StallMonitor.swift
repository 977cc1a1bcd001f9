public import RunLoopKit
import StackCapture
import StallReports
import Synchronization

/// Watches event loops of this process, and reports each stall: what stood still, since when, where in the code, and why.
///
///     let monitor = StallMonitor.start()
///     defer { monitor.stop() }
///
/// It runs three threads: the watchdog, which looks, the reporter, which names and writes, and the recorder, which keeps a record
/// of the stalls under way that outlives the process. While every watched loop is at rest none of them runs. A fault of the monitor never stops the process: it goes on with what still works, and says so
/// once (``StallEvent/fault(_:)``, or a line on standard error where there is no handler).
public final class StallMonitor: Sendable {
    /// The version that reports name.
    public static let version = "0.1.0"

    private let configuration: Configuration
    private let lifecycle = Mutex(Lifecycle.idle)

    /// What can be done with a monitor. Orders to the watchdog are given under the lock, so that none comes after `stop`.
    private enum Lifecycle: Sendable {
        /// Switched off, or without the threads it needs.
        case idle
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
            monitor.lifecycle.withLock { $0 = .running(engine, watches: 0) }
            for loop in loops { monitor.watchOrTell(loop, engine) }
        } catch {
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
        return try lifecycle.withLock { lifecycle throws(StallMonitorError) in
            switch lifecycle {
            case .idle: return Watch(watchdog: nil, number: 0)
            case .stopped: throw StallMonitorError(.stopped)
            case .running(let engine, let watches):
                guard !loop.heartbeat.hasEnded else { throw StallMonitorError(.loopEnded) }
                guard loop.heartbeat.attach(engine.watchdog) else { throw StallMonitorError(.loopAlreadyWatched) }
                let identity = WatchIdentity(number: watches + 1, name: name, since: .now)
                engine.watchdog.give(.watch(identity, loop, rule ?? configuration.rule))
                lifecycle = .running(engine, watches: watches + 1)
                return Watch(watchdog: engine.watchdog, number: identity.number)
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

    /// Ends the watch: closes the report of a stall under way, writes the run record, ends both threads and gives the capture
    /// signal back. Any thread but a handler's; once is enough. Waits 5 s at most for a disk or a handler that does not return:
    /// then it leaves what it cannot end.
    public func stop() {
        let engine: Engine? = lifecycle.withLock { lifecycle in
            guard case .running(let engine, _) = lifecycle else { return nil }
            lifecycle = .stopped
            engine.watchdog.give(.stop)
            return engine
        }
        engine?.end(by: .now + .seconds(5))
    }

    /// Whether stalls are being looked for. Any thread.
    public var isRunning: Bool {
        lifecycle.withLock { if case .running = $0 { true } else { false } }
    }
}

/// A loop under watch.
public struct Watch: Sendable {
    fileprivate let watchdog: Watchdog?
    fileprivate let number: Int

    /// Has the watchdog stop watching the loop, and close a stall under way. Any thread; returns at once. The loop can be watched
    /// anew when the watchdog has done so.
    public func cancel() {
        watchdog?.give(.cancel(number))
    }
}
