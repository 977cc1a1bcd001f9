import Glibc
import Locking
import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports

/// A running monitor: its threads, their start and their end.
struct Engine: Sendable {
    /// What concerns every loop: what the server expects of itself, and the start.
    let slowness: ExpectedSlowness
    private let startup: ExpectedSlowness
    let parts: EngineParts
    private let stackSource: StackSource
    // These two always exist. The writer and the recorder have threads on demand; the endpoint has its own thread.
    private let reporterThread: MonitorThread
    private let watchdogThread: MonitorThread

    var watchdog: Watchdog { parts.watchdog }
    var notices: Mailbox<StallNotice> { parts.notices }
    var ledger: WatchdogLedger { parts.ledger }
    var scopes: [ExpectedSlowness] { [slowness, startup] }

    /// - Throws: `threadNotStarted`; nothing is left behind then.
    init(
        _ configuration: StallMonitor.Configuration,
        _ tell: @escaping @Sendable (StallEvent) -> Void
    ) throws(StallMonitorError) {
        let parts = EngineParts(configuration)
        self.parts = parts
        slowness = ExpectedSlowness(ledger: parts.ledger)
        startup = ExpectedSlowness(kind: .startup, ledger: parts.ledger)
        reporterThread = try MonitorThread(name: "stall-reporter") { Reporter(parts, tell).run() }
        if configuration.keepsLiveRecord {
            parts.startRecording()
            ExitNotes.add(parts.live)
        } else {
            parts.live.close()
        }
        let stackSource = StackSource(signal: configuration.captureSignal) { parts.notices.add($0) }
        self.stackSource = stackSource
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") {
                parts.watchdog.run(parts.makeWatchdogState(stackSource))
            }
        } catch {
            parts.notices.add(.disarmed(error))
            parts.end(reporterThread)
            stackSource.invalidate()
            throw error
        }
        WorkTable.addReader()
    }

    /// Passes the changes to each part. Any thread; returns at once.
    func adopt(_ new: StallMonitor.Configuration, insteadOf old: StallMonitor.Configuration) {
        watchdog.give(.adopt(new))
        if new.repeats != old.repeats { notices.add(.adopt(new.repeats)) }
        if new.limits != old.limits { parts.writer.adopt(new.limits) }
    }

    /// For this long from now on, nothing counts as a stall.
    func allowStart(_ grace: Duration) {
        guard grace > .zero else { return }
        _ = startup.open(for: grace)
        ledger.update { $0.startup = (since: MonotonicInstant.now, grace: grace) }
    }

    /// Lets the watchdog close its stalls and end. Any thread; returns at once.
    func orderEnd() {
        stackSource.stopper.set()
        watchdog.give(.stop)
    }

    /// Waits for the end that was ordered. A thread that does not end in time continues, and the capture signal stays installed for
    /// it.
    func end() {
        // The reporter still looks for the work of the last stalls.
        defer { WorkTable.removeReader() }
        var patience = EngineParts.endPatience
        guard watchdogThread.join(within: &patience) else { return parts.live.stay() }
        parts.end(reporterThread, within: patience)
        stackSource.invalidate()
    }
}

/// What the threads of a monitor share, and what each of them runs.
struct EngineParts: Sendable {
    let watchdog = Watchdog()
    let notices: Mailbox<StallNotice>
    let ledger = WatchdogLedger()
    let live: LiveBoard
    let writer: ReportWriter
    let configuration: StallMonitor.Configuration
    let run: RunIdentity
    let meter = CostMeter()
    let supply = SupplyLocation()
    /// Where reports are written, wherever the server's working directory will be.
    private let directory: String

    init(_ configuration: StallMonitor.Configuration) {
        self.configuration = configuration
        directory = absolutePath(configuration.directory)
        let notices = Mailbox<StallNotice>(capacity: configuration.noticeCapacity)
        self.notices = notices
        live = LiveBoard(standIn: watchdog.semaphore)
        run = RunIdentity(service: configuration.service)
        writer = ReportWriter(
            sink: DirectorySink(ReportDirectory(path: directory, limits: configuration.limits)),
            limits: configuration.memory,
            meter: meter,
            changed: { notices.add(.checkpoint) },
            startsThread: true
        )
    }

    /// Called on the watchdog's thread before it watches anything, because this may wait for the kernel.
    func makeWatchdogState(_ stackSource: StackSource) -> WatchdogState {
        supply.locate()
        var state = WatchdogState(
            notices: notices,
            ledger: ledger,
            stackSource: stackSource,
            wakeFlags: watchdog.wakeFlags,
            costs: makeCostGuard(),
            live: live,
            supply: supply
        )
        state.services.adopt(configuration)
        return state
    }

    func makeCostGuard() -> CostGuard {
        CostGuard(limits: configuration.cost, meter: meter, notices: notices, ledger: ledger)
    }

    /// How long the end may take. Time in which the process is stopped does not count.
    static let endPatience = Duration.seconds(5)

    /// Ends the reporter, the writer and the recorder, in this order: each of them may give work to the next one. Called after the watchdog has
    /// ended.
    func end(_ reporter: MonitorThread, within patience: Duration = endPatience) {
        // If the process calls exit meanwhile, no watchdog starts the recorder.
        live.refresh()
        notices.close()
        // The writer gives up early enough for the reporter to report what a dead disk did not take.
        let forLosses = min(patience, .seconds(1))
        var patience = patience - forLosses
        var hasEnded = reporter.join(within: &patience)
        // If a handler stops its own monitor, this is the reporter's thread, which has not been waited for. It ends later, and its disk has time.
        if !hasEnded, patience <= .zero { writer.giveUp() }
        patience += forLosses
        if !hasEnded { hasEnded = reporter.join(within: &patience) }
        // The record is removed last, and only if the reports are written: otherwise it is the only trace of their stalls, and the next start
        // makes reports of it. Then the recorder stays, to note how the process ends.
        guard hasEnded, writer.join(within: &patience), live.open.isEmpty else { return live.stay() }
        ExitNotes.remove(live)
        live.close()
        _ = live.thread.join(within: &patience)
    }

    /// How many reports will not reach the disk.
    ///
    /// - Parameter isOver: Whether nothing is written any more, so that what still waits is lost.
    func lostReports(isOver: Bool) -> Int {
        let status = writer.status
        let waiting = isOver ? status.waitingReports : 0
        return status.lost + status.unmade + waiting + notices.dropped["stalls", default: 0]
    }

    /// Keeps the live record from now on.
    ///
    /// - Parameter patience: The recorder's thread ends after this long without news. Nil: it stays.
    func startRecording(patience: Duration? = ThreadOnDemand.idleTime) {
        let recorder = ForkSafeMutex(LiveRecorder(board: live, run: run, directory: directory))
        // Held by one thread at a time: the next one starts after the previous one has left.
        live.record { recorder.withLock { $0.work(patience: patience) } }
    }
}

/// The origin of reports. The same in every report of a run.
struct RunIdentity: Sendable {
    let id: ULID
    let host: HostIdentity
    let service: ServiceIdentity
    let process: ProcessIdentity
    let startedAt: Timestamp

    /// The calling process.
    ///
    /// - Parameter service: Nil: named after its executable.
    init(service: ServiceIdentity?) {
        id = .make()
        host = .current()
        process = .current()
        startedAt = .now()
        let executable = process.executable.map(fileName(ofPath:))
        self.service = service ?? ServiceIdentity(name: executable ?? "unknown")
    }
}

/// The path as of now, in whatever directory the process will work later. Unchanged if there is no working directory.
private func absolutePath(_ path: String) -> String {
    guard !path.isEmpty, !path.hasPrefix("/"), let folder = unsafe getcwd(nil, 0) else { return path }
    defer { unsafe free(folder) }
    return unsafe String(validatingCString: folder).map { "\($0)/\(path)" } ?? path
}
