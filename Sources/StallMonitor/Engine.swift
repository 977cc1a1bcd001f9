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
    // These two are always there. The writer and the recorder have threads on demand, the endpoint one of its own.
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
        reporterThread = try MonitorThread(name: "stall-reporter") { parts.makeReporter(tell).run() }
        if configuration.keepsLiveRecord { parts.startRecording() } else { parts.live.close() }
        if configuration.keepsLiveRecord { ExitNotes.add(parts.live) }
        let stackSource = parts.makeStackSource()
        capturer = stackSource.capturer
        do throws(StallMonitorError) {
            watchdogThread = try MonitorThread(name: "stall-watchdog") {
                parts.watchdog.run(parts.makeWatchdogState(stackSource))
            }
        } catch {
            parts.notices.add(.disarmed(error))
            Self.end(parts, reporterThread, capturer, by: .now + .seconds(5))
            throw error
        }
        WorkTable.addReader(1)
    }

    /// From now on for so long, nothing is a stall.
    func allowStart(_ grace: Duration) {
        guard grace > .zero else { return }
        _ = startup.open(for: grace)
        ledger.update { $0.pauses.sum(.startup, lasting: grace) }
    }

    /// Waits for the end that was ordered. What does not end by the deadline goes on, and the capture signal with it.
    func end(by deadline: MonotonicInstant) {
        WorkTable.addReader(-1)
        guard watchdogThread.join(by: deadline) else { return }
        Self.end(parts, reporterThread, capturer, by: deadline)
    }

    /// Ends all but the watchdog, which has ended.
    private static func end(
        _ parts: EngineParts,
        _ reporter: MonitorThread,
        _ capturer: StackCapturer?,
        by deadline: MonotonicInstant
    ) {
        // No watchdog is left to start the recorder for an exit that comes meanwhile.
        parts.live.refresh()
        // The reporter is to have the time to say what a dead disk did not take.
        parts.writer.giveUp(at: deadline + .seconds(-1))
        parts.notices.close()
        // The record goes last: until the reports are written it is what tells of them.
        if reporter.join(by: deadline), parts.writer.join(by: deadline) {
            ExitNotes.remove(parts.live)
            parts.live.close()
            _ = parts.live.thread.join(by: deadline)
        }
        capturer?.invalidate()
    }
}
