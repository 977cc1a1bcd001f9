import RunLoopKit
import StackCapture
import StallReports

/// A running monitor: its threads, their start and their end.
struct Engine: Sendable {
    /// What concerns every loop: what the server expects of itself, and the start.
    let slowness: ExpectedSlowness
    private let startup: ExpectedSlowness
    let parts: EngineParts
    private let capturer: StackCapturer?
    private let writerThread: MonitorThread
    private let reporterThread: MonitorThread
    /// Nil where no live record is kept: reports are written all the same.
    private let recorderThread: MonitorThread?
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
        writerThread = try MonitorThread(name: "stall-writer") { parts.writer.run() }
        do throws(StallMonitorError) {
            reporterThread = try MonitorThread(name: "stall-reporter") { parts.makeReporter(tell).run() }
        } catch {
            parts.writer.order { $0.close() }
            _ = writerThread.join(by: .now + .seconds(5))
            throw error
        }
        recorderThread = configuration.keepsLiveRecord ? Self.startRecorder(parts) : nil
        if recorderThread == nil { parts.live.close() }
        let stackSource = parts.makeStackSource()
        capturer = stackSource.capturer
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") {
                parts.watchdog.run(parts.makeWatchdogState(stackSource))
            }
        } catch {
            parts.notices.add(.disarmed(error))
            Self.end(parts, (writerThread, reporterThread, recorderThread), capturer, by: .now + .seconds(5))
            throw error
        }
    }

    /// From now on for so long, nothing is a stall.
    func allowStart(_ grace: Duration) {
        guard grace > .zero else { return }
        _ = startup.open(for: grace)
        ledger.update { $0.pauses.sum(.startup, lasting: grace) }
    }

    /// Waits for the end that was ordered. What does not end by the deadline goes on, and the capture signal with it.
    func end(by deadline: MonotonicInstant) {
        guard watchdogThread.join(by: deadline) else { return }
        Self.end(parts, (writerThread, reporterThread, recorderThread), capturer, by: deadline)
    }

    private static func startRecorder(_ parts: EngineParts) -> MonitorThread? {
        let thread = try? MonitorThread(name: "stall-recorder") { parts.makeRecorder().work() }
        if thread != nil { ExitNotes.add(parts.live) }
        return thread
    }

    /// Ends all but the watchdog, which has ended.
    private static func end(
        _ parts: EngineParts,
        _ threads: (writer: MonitorThread, reporter: MonitorThread, recorder: MonitorThread?),
        _ capturer: StackCapturer?,
        by deadline: MonotonicInstant
    ) {
        // The reporter is to have the time to say what a dead disk did not take.
        parts.writer.giveUp(at: deadline + .seconds(-1))
        parts.notices.close()
        // The record goes last: until the reports are written it is what tells of them.
        if threads.reporter.join(by: deadline), threads.writer.join(by: deadline) {
            ExitNotes.remove(parts.live)
            parts.live.close()
            _ = threads.recorder?.join(by: deadline)
        }
        capturer?.invalidate()
    }
}
