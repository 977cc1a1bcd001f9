import RunLoopKit
import StackCapture
import StallReports

/// The running parts of a monitor: the two threads and what is between them.
struct Engine: Sendable {
    let watchdog = Watchdog()
    let notices = Mailbox<StallNotice>(capacity: 256)
    private let capturer: StackCapturer?
    private let watchdogThread: MonitorThread
    private let reporterThread: MonitorThread

    /// - Throws: `threadNotStarted`; nothing is left behind then.
    init(
        _ configuration: StallMonitor.Configuration,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        let (watchdog, notices, ledger) = (watchdog, notices, WatchdogLedger())
        reporterThread = try MonitorThread(name: "stall-reporter") {
            Self.makeReporter(configuration, notices, ledger, tell).run()
        }
        let stackSource = StackSource(signal: configuration.captureSignal) { notices.add(.fault($0)) }
        capturer = stackSource.capturer
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") {
                watchdog.run(WatchRound(notices: notices, ledger: ledger, stackSource: stackSource))
            }
        } catch {
            notices.close()
            _ = reporterThread.join(by: .now + .seconds(5))
            stackSource.capturer?.invalidate()
            throw error
        }
    }

    /// Waits for the end that was ordered. What does not end by the deadline goes on, and the capture signal with it.
    func end(by deadline: MonotonicInstant) {
        guard watchdogThread.join(by: deadline) else { return }
        notices.close()
        _ = reporterThread.join(by: deadline)
        capturer?.invalidate()
    }

    private static func makeReporter(
        _ configuration: StallMonitor.Configuration,
        _ notices: Mailbox<StallNotice>,
        _ ledger: WatchdogLedger,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) -> Reporter {
        let run = RunIdentity(service: configuration.service)
        return Reporter(
            notices: notices,
            composer: ReportComposer(run: run, ownCode: configuration.ownCode),
            shelf: ReportShelf(
                directory: ReportDirectory(path: configuration.directory, limits: configuration.limits),
                bell: FaultBell { tell(.fault($0)) }
            ),
            log: RunLog(run: run, ledger: ledger),
            throttle: ReportThrottle(rule: configuration.repeats),
            tell: tell
        )
    }
}
