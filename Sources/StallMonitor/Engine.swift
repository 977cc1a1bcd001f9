import RunLoopKit
import StackCapture
import StallReports

/// The running parts of a monitor: the two threads and what is between them.
struct Engine: Sendable {
    let watchdog = Watchdog()
    let notices = Mailbox<StallNotice>(capacity: 256)
    let ledger: WatchdogLedger
    /// What concerns every loop: what the server expects of itself, and the start.
    let slowness: ExpectedSlowness
    private let startup: ExpectedSlowness
    private let capturer: StackCapturer?
    private let watchdogThread: MonitorThread
    private let reporterThread: MonitorThread

    /// - Throws: `threadNotStarted`; nothing is left behind then.
    init(
        _ configuration: StallMonitor.Configuration,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        let (watchdog, notices, ledger) = (watchdog, notices, WatchdogLedger())
        self.ledger = ledger
        slowness = ExpectedSlowness(ledger: ledger)
        startup = ExpectedSlowness(kind: .startup, ledger: ledger)
        let supply = SupplyLocation()
        reporterThread = try MonitorThread(name: "stall-reporter") {
            Self.makeReporter(configuration, notices, ledger, supply, tell).run()
        }
        var stackSource = StackSource(
            signal: configuration.captureSignal,
            followsLocks: configuration.followsLocks
        ) { notices.add(.fault($0)) }
        stackSource.capturesAllThreads = configuration.captureAllThreads
        capturer = stackSource.capturer
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") { [stackSource] in
                watchdog.run(
                    WatchRound(
                        notices: notices,
                        ledger: ledger,
                        stackSource: stackSource,
                        bells: watchdog.bells,
                        countsTraced: configuration.countsTracedStalls,
                        supply: supply
                    )
                )
            }
        } catch {
            notices.add(.disarmed(error))
            notices.close()
            _ = reporterThread.join(by: .now + .seconds(5))
            stackSource.capturer?.invalidate()
            throw error
        }
    }

    var scopes: [ExpectedSlowness] { [slowness, startup] }

    /// From now on for so long, nothing is a stall.
    func allowStart(_ grace: Duration) {
        guard grace > .zero else { return }
        _ = startup.open(for: grace)
        ledger.update { $0.pauses.sum(.startup, lasting: grace) }
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
        _ supply: SupplyLocation,
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
            log: RunLog(run: run, ledger: ledger, droppedNotices: { notices.dropped }),
            supply: supply,
            tell: tell
        )
    }
}
