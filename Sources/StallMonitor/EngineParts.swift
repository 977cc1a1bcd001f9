import RunLoopKit
import StallReports

/// What the threads of a monitor share, and what each of them runs.
struct EngineParts: Sendable {
    let watchdog = Watchdog()
    let notices: Mailbox<StallNotice>
    let ledger = WatchdogLedger()
    let live = LiveBoard()
    let writer: ReportWriter
    private let configuration: StallMonitor.Configuration
    private let run: RunIdentity
    private let meter = CostMeter()
    private let supply = SupplyLocation()

    init(_ configuration: StallMonitor.Configuration) {
        self.configuration = configuration
        let notices = Mailbox<StallNotice>(capacity: configuration.noticeCapacity)
        self.notices = notices
        run = RunIdentity(service: configuration.service)
        writer = ReportWriter(
            directory: ReportDirectory(path: configuration.directory, limits: configuration.limits),
            limits: configuration.memory,
            meter: meter,
            changed: { notices.add(.checkpoint) }
        )
    }

    /// Takes the signal. What cannot be captured with is told as a fault.
    func makeStackSource() -> StackSource {
        var source = StackSource(
            signal: configuration.captureSignal,
            followsLocks: configuration.followsLocks
        ) { notices.add(.fault($0)) }
        source.capturesAllThreads = configuration.captureAllThreads
        return source
    }

    /// On the watchdog's thread: before it watches anything, it may wait for the kernel.
    func makeRound(_ stackSource: StackSource) -> WatchRound {
        supply.locate()
        return WatchRound(
            notices: notices,
            ledger: ledger,
            stackSource: stackSource,
            bells: watchdog.bells,
            costs: CostGuard(limits: configuration.cost, meter: meter, notices: notices, ledger: ledger),
            live: live,
            countsTraced: configuration.countsTracedStalls,
            supply: supply
        )
    }

    func makeReporter(_ handler: @escaping @Sendable (StallEvent) -> Void) -> Reporter {
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

    func makeRecorder() -> LiveRecorder {
        LiveRecorder(board: live, run: run, directory: configuration.directory)
    }
}
