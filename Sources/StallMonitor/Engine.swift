import RunLoopKit
import StackCapture
import StallReports

/// The running parts of a monitor: the three threads and what is between them.
struct Engine: Sendable {
    let watchdog = Watchdog()
    let notices = Mailbox<StallNotice>(capacity: 256)
    private let capturer: StackCapturer?
    private let watchdogThread: MonitorThread
    private let reporterThread: MonitorThread
    private let live = LiveBoard()
    private let recorderThread: MonitorThread?

    /// - Throws: `threadNotStarted`; nothing is left behind then.
    init(
        _ configuration: StallMonitor.Configuration,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        let (watchdog, notices, live, ledger) = (watchdog, notices, live, WatchdogLedger())
        let run = RunIdentity(service: configuration.service)
        reporterThread = try MonitorThread(name: "stall-reporter") {
            Self.makeReporter(configuration, run, notices, ledger, live, tell).run()
        }
        // Without it reports are written all the same.
        recorderThread =
            configuration.keepsLiveRecord
            ? try? MonitorThread(name: "stall-recorder") {
                LiveRecorder(board: live, run: run, directory: configuration.directory).work()
            } : nil
        if recorderThread != nil { ExitNotes.add(live) } else { live.close() }
        let stackSource = StackSource(signal: configuration.captureSignal) { notices.add(.fault($0)) }
        capturer = stackSource.capturer
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") {
                watchdog.run(WatchRound(notices: notices, ledger: ledger, stackSource: stackSource, live: live))
            }
        } catch {
            notices.close()
            _ = reporterThread.join(by: .now + .seconds(5))
            Self.endRecord(live, recorderThread, by: .now + .seconds(5))
            stackSource.capturer?.invalidate()
            throw error
        }
    }

    /// Waits for the end that was ordered. What does not end by the deadline goes on, and the capture signal with it.
    func end(by deadline: MonotonicInstant) {
        guard watchdogThread.join(by: deadline) else { return }
        notices.close()
        // The record goes last: until the reports are written it is what tells of them.
        if reporterThread.join(by: deadline) { Self.endRecord(live, recorderThread, by: deadline) }
        capturer?.invalidate()
    }

    private static func endRecord(_ live: LiveBoard, _ recorder: MonitorThread?, by deadline: MonotonicInstant) {
        ExitNotes.remove(live)
        live.close()
        _ = recorder?.join(by: deadline)
    }

    private static func makeReporter(
        _ configuration: StallMonitor.Configuration,
        _ run: RunIdentity,
        _ notices: Mailbox<StallNotice>,
        _ ledger: WatchdogLedger,
        _ live: LiveBoard,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) -> Reporter {
        Reporter(
            notices: notices,
            composer: ReportComposer(run: run, ownCode: configuration.ownCode),
            shelf: ReportShelf(
                directory: ReportDirectory(path: configuration.directory, limits: configuration.limits),
                bell: FaultBell { tell(.fault($0)) }
            ),
            log: RunLog(run: run, ledger: ledger),
            live: live,
            tell: tell
        )
    }
}
