public import RunLoopKit
import StackCapture
import StallReports
import Synchronization

/// Watches event loops of this process, and reports each stall: what stood still, since when, where in the code, and why.
///
///     let monitor = StallMonitor.start()
///     defer { monitor.stop() }
///
/// It runs two threads: the watchdog, which looks, and the reporter, which names and writes. While every watched loop is at
/// rest neither of them runs. A fault of the monitor never stops the process: it goes on with what still works, and says so
/// once (``StallEvent/fault(_:)``, or a line on standard error where there is no handler).
public final class StallMonitor: Sendable {
    /// The version that reports name.
    public static let version = "0.1.0"

    private let configuration: Configuration
    private let watchdog = Watchdog()
    private let lifecycle: Mutex<Lifecycle>

    private init(_ configuration: Configuration, _ lifecycle: consuming Lifecycle) {
        self.configuration = configuration
        self.lifecycle = Mutex(lifecycle)
    }

    /// Starts to watch. Any thread; returns at once.
    ///
    /// - Parameters:
    ///   - configuration: see there; the defaults suit a server.
    ///   - loops: what to watch from the start: the main loop, which also runs the main queue and the main actor.
    ///   - onEvent: called on the reporter's thread for each stall that begins, grows and ends, and for each fault.
    public static func start(
        _ configuration: Configuration = Configuration(),
        watching loops: [any WatchableLoop] = [EventRunLoop.main],
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) -> StallMonitor {
        let monitor = StallMonitor(configuration, Lifecycle())
        let tell = onEvent ?? StandardError.tell
        guard configuration.isEnabled else { return monitor }
        do throws(StallMonitorError) {
            try monitor.launch(tell)
            for loop in loops { try monitor.watch(loop) }
        } catch {
            tell(.fault(error))
        }
        return monitor
    }

    /// Watches one more loop. Any thread.
    ///
    /// - Parameters:
    ///   - label: what reports call it; the loop's own label unless given.
    ///   - rule: when it counts as stalled; the configuration's rule unless given.
    /// - Throws: `loopAlreadyWatched`, `loopEnded`, or `stopped` when the monitor is not running.
    @discardableResult
    public func watch(
        _ loop: any WatchableLoop,
        label: String? = nil,
        rule: StallRule? = nil
    ) throws(StallMonitorError) -> Watch {
        guard let number = lifecycle.withLock({ $0.nextWatch() }) else { throw StallMonitorError(.stopped) }
        guard !loop.heartbeat.hasEnded else { throw StallMonitorError(.loopEnded) }
        guard loop.heartbeat.attach(watchdog) else { throw StallMonitorError(.loopAlreadyWatched) }
        let identity = WatchIdentity(number: number, type: WatchedType.runLoop.rawValue, label: label ?? loop.label)
        watchdog.give(.watch(identity, loop, rule ?? configuration.rule))
        return Watch(watchdog: watchdog, number: number)
    }

    /// Ends the watch: closes the report of a stall under way, writes the run record, ends both threads and gives the capture
    /// signal back. Any thread but a handler's. Waits 5 s at most for a disk or a handler that does not return. Once is enough.
    public func stop() {
        guard let threads = lifecycle.withLock({ $0.end() }) else { return }
        watchdog.give(.stop)
        _ = threads.watchdog.join(patience: .seconds(5))
        threads.notices.close()
        _ = threads.reporter.join(patience: .seconds(5))
        threads.capturer?.invalidate()
    }

    /// Whether stalls are being looked for.
    public var isRunning: Bool { lifecycle.withLock { $0.threads != nil } }

    private func launch(_ tell: @escaping @Sendable (StallEvent) -> Void) throws(StallMonitorError) {
        let stackSource = StackSource(signal: configuration.captureSignal) { tell(.fault($0)) }
        let notices = Mailbox<StallNotice>(capacity: 256)
        let ledger = WatchdogLedger()
        let run = RunIdentity(service: configuration.service)
        let configuration = configuration
        let reporter = try MonitorThread(name: "stall-reporter") {
            let reporter = Reporter(
                notices: notices,
                composer: ReportComposer(run: run, ownCode: configuration.ownCode),
                shelf: ReportShelf(
                    directory: ReportDirectory(path: configuration.directory, limits: configuration.limits),
                    bell: FaultBell { tell(.fault($0)) }
                ),
                log: RunLog(run: run, ledger: ledger) { notices.dropped },
                tell: tell
            )
            reporter.run()
        }
        do throws(StallMonitorError) {
            let watchdogThread = try MonitorThread(name: "stall-watchdog") { [watchdog] in
                watchdog.run(WatchRound(notices: notices, ledger: ledger, stackSource: stackSource))
            }
            lifecycle.withLock {
                $0.threads = Threads(
                    watchdog: watchdogThread,
                    reporter: reporter,
                    notices: notices,
                    capturer: stackSource.capturer
                )
            }
        } catch {
            notices.close()
            _ = reporter.join(patience: .seconds(5))
            throw error
        }
    }
}

/// A loop under watch.
public struct Watch: Sendable {
    fileprivate let watchdog: Watchdog
    fileprivate let number: Int

    /// Stops watching the loop; a stall under way is closed. Any thread.
    public func cancel() {
        watchdog.give(.cancel(number))
    }
}

/// What `start` made and `stop` must end.
private struct Threads: Sendable {
    let watchdog: MonitorThread
    let reporter: MonitorThread
    let notices: Mailbox<StallNotice>
    let capturer: StackCapturer?
}

private struct Lifecycle: Sendable {
    var threads: Threads?
    private var watches = 0

    init() {}

    mutating func nextWatch() -> Int? {
        guard threads != nil else { return nil }
        watches += 1
        return watches
    }

    mutating func end() -> Threads? {
        defer { threads = nil }
        return threads
    }
}
