import RunLoopKit
import StackCapture
import StallReports

/// The running parts of a monitor: its threads and what is between them.
struct Engine: Sendable {
    let watchdog = Watchdog()
    let notices: Mailbox<StallNotice>
    let ledger: WatchdogLedger
    /// What concerns every loop: what the server expects of itself, and the start.
    let slowness: ExpectedSlowness
    private let startup: ExpectedSlowness
    private let capturer: StackCapturer?
    private let writer: ReportWriter
    private let writerThread: MonitorThread
    private let watchdogThread: MonitorThread
    private let reporterThread: MonitorThread
    private let live = LiveBoard()
    private let recorderThread: MonitorThread?

    /// - Throws: `threadNotStarted`; nothing is left behind then.
    init(
        _ configuration: StallMonitor.Configuration,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        let (watchdog, live) = (watchdog, live)
        let (ledger, meter, supply) = (WatchdogLedger(), CostMeter(), SupplyLocation())
        let notices = Mailbox<StallNotice>(capacity: configuration.noticeCapacity)
        let run = RunIdentity(service: configuration.service)
        self.notices = notices
        self.ledger = ledger
        slowness = ExpectedSlowness(ledger: ledger)
        startup = ExpectedSlowness(kind: .startup, ledger: ledger)
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
                Self.makeReporter(configuration, run, notices, ledger, meter, writer, live, supply, tell).run()
            }
        } catch {
            writer.order { $0.close() }
            _ = writerThread.join(by: .now + .seconds(5))
            throw error
        }
        // Without it reports are written all the same.
        recorderThread =
            configuration.keepsLiveRecord
            ? try? MonitorThread(name: "stall-recorder") {
                LiveRecorder(board: live, run: run, directory: configuration.directory).work()
            } : nil
        if recorderThread != nil { ExitNotes.add(live) } else { live.close() }
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
                        costs: CostGuard(limits: configuration.cost, meter: meter, notices: notices, ledger: ledger),
                        live: live,
                        countsTraced: configuration.countsTracedStalls,
                        supply: supply
                    )
                )
            }
        } catch {
            notices.add(.disarmed(error))
            notices.close()
            _ = reporterThread.join(by: .now + .seconds(5))
            _ = writerThread.join(by: .now + .seconds(5))
            Self.endRecord(live, recorderThread, by: .now + .seconds(5))
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
        // The reporter is to have the time to say what a dead disk did not take.
        writer.giveUp(at: deadline + .seconds(-1))
        notices.close()
        // The record goes last: until the reports are written it is what tells of them.
        if reporterThread.join(by: deadline), writerThread.join(by: deadline) {
            Self.endRecord(live, recorderThread, by: deadline)
        }
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
        _ meter: CostMeter,
        _ writer: ReportWriter,
        _ live: LiveBoard,
        _ supply: SupplyLocation,
        _ handler: @escaping @Sendable (StallEvent) -> Void
    ) -> Reporter {
        let tell = meter.exempting(handler)
        return Reporter(
            notices: notices,
            composer: ReportComposer(run: run, ownCode: configuration.ownCode),
            shelf: ReportShelf(writer: writer, bell: FaultBell(tell)),
            log: RunLog(run: run, ledger: ledger, meter: meter, notices: notices),
            expenses: StallExpenses(meter: meter, ledger: ledger),
            throttle: ReportThrottle(rule: configuration.repeats),
            live: live,
            supply: supply,
            tell: tell
        )
    }
}
