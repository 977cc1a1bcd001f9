import RunLoopKit
import StackCapture
import StallReports

/// The running parts of a monitor: its threads and what is between them.
struct Engine: Sendable {
    let watchdog = Watchdog()
    let notices: Mailbox<StallNotice>
    private let capturer: StackCapturer?
    private let writer: ReportWriter
    private let writerThread: MonitorThread
    private let watchdogThread: MonitorThread
    private let reporterThread: MonitorThread

    /// - Throws: `threadNotStarted`; nothing is left behind then.
    init(
        _ configuration: StallMonitor.Configuration,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        let (watchdog, ledger, meter) = (watchdog, WatchdogLedger(), CostMeter())
        let notices = Mailbox<StallNotice>(capacity: configuration.noticeCapacity)
        self.notices = notices
        let writer = ReportWriter(
            directory: ReportDirectory(path: configuration.directory, limits: configuration.limits),
            limits: configuration.memory,
            meter: meter,
            changed: { notices.add(.checkpoint) }
        )
        self.writer = writer
        writerThread = try MonitorThread(name: "stall-writer") { writer.run() }
        do throws(StallMonitorError) {
            reporterThread = try MonitorThread(name: "stall-reporter") {
                Self.makeReporter(configuration, notices, ledger, meter, writer, tell).run()
            }
        } catch {
            writer.order { $0.close() }
            _ = writerThread.join(by: .now + .seconds(5))
            throw error
        }
        let stackSource = StackSource(signal: configuration.captureSignal) { notices.add(.fault($0)) }
        capturer = stackSource.capturer
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") {
                let costs = CostGuard(limits: configuration.cost, meter: meter, notices: notices, ledger: ledger)
                watchdog.run(WatchRound(notices: notices, ledger: ledger, stackSource: stackSource, costs: costs))
            }
        } catch {
            notices.close()
            _ = reporterThread.join(by: .now + .seconds(5))
            _ = writerThread.join(by: .now + .seconds(5))
            stackSource.capturer?.invalidate()
            throw error
        }
    }

    /// Waits for the end that was ordered. What does not end by the deadline goes on, and the capture signal with it.
    func end(by deadline: MonotonicInstant) {
        guard watchdogThread.join(by: deadline) else { return }
        // The reporter is to have the time to say what a dead disk did not take.
        writer.giveUp(at: deadline + .seconds(-1))
        notices.close()
        if reporterThread.join(by: deadline) { _ = writerThread.join(by: deadline) }
        capturer?.invalidate()
    }

    private static func makeReporter(
        _ configuration: StallMonitor.Configuration,
        _ notices: Mailbox<StallNotice>,
        _ ledger: WatchdogLedger,
        _ meter: CostMeter,
        _ writer: ReportWriter,
        _ handler: @escaping @Sendable (StallEvent) -> Void
    ) -> Reporter {
        let tell = meter.exempting(handler)
        let run = RunIdentity(service: configuration.service)
        return Reporter(
            notices: notices,
            composer: ReportComposer(run: run, ownCode: configuration.ownCode),
            shelf: ReportShelf(writer: writer, bell: FaultBell(tell)),
            log: RunLog(run: run, ledger: ledger, meter: meter, notices: notices),
            expenses: StallExpenses(meter: meter, ledger: ledger),
            tell: tell
        )
    }
}
