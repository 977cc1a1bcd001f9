import Dispatch
import Foundation
import Glibc
import StallMonitor
import StallMonitorLoops
import StallReports

/// A server whose main thread runs the given loop, and which shuts down at SIGTERM, also while that thread is stalled:
/// shutdown-host DIRECTORY dispatch-main|run-loop.
@main struct Main {
    static func main() {
        let usesRunLoop = CommandLine.arguments[2] == "run-loop"
        let monitor = StallMonitor.start(
            .init(directory: CommandLine.arguments[1]),
            watching: usesRunLoop ? .foundationMain : .main,
            onEvent: tell
        )
        signal(SIGTERM, SIG_IGN)
        // Not on the main queue, which may be stalled.
        let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
        termination.setEventHandler { @Sendable in
            monitor.stop()
            say("ended in order")
            exit(0)
        }
        // A thread of libdispatch registers it: a signal that came before would be lost.
        let registered = DispatchSemaphore(value: 0)
        termination.setRegistrationHandler { @Sendable in registered.signal() }
        termination.resume()
        registered.wait()
        say("ready")
        stallMainQueue(after: 20)
        if usesRunLoop { RunLoop.main.run() } else { dispatchMain() }
    }

    /// Stalls the main thread once its loop has turned a few times: a third-party loop is recognised by its waits.
    private static func stallMainQueue(after turns: Int) {
        DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(20)) {
            if turns > 0 { stallMainQueue(after: turns - 1) } else { say("stalling"); sleep(60) }
        }
    }

    @Sendable static func tell(_ event: StallEvent) {
        switch event {
        case .began: say("began")
        case .ended(let report): say("told \(report.state.rawValue)")
        default: break
        }
    }
}

/// Flushed immediately, because standard output may not be a terminal.
func say(_ text: String) {
    print(text)
    fflush(nil)
}
