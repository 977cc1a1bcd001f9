import Dispatch
import Foundation
import Glibc
import StallMonitor
import StallMonitorLoops

/// A server whose main thread runs the loop that it is told, and which ends in order at SIGTERM, also while that thread stands:
/// shutdown-host DIRECTORY dispatch-main|run-loop.
@main struct Main {
    static func main() {
        let usesRunLoop = CommandLine.arguments[2] == "run-loop"
        let monitor = StallMonitor.start(
            .init(directory: CommandLine.arguments[1]),
            watching: usesRunLoop ? .foundationMain : .main,
            onEvent: tell
        )
        unsafe signal(SIGTERM, SIG_IGN)
        // Not on the main queue, which may stand.
        let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
        termination.setEventHandler { @Sendable in
            monitor.stop()
            say("ended in order")
            exit(0)
        }
        termination.resume()
        say("ready")
        DispatchQueue.main.async { sleep(60) }
        if usesRunLoop { RunLoop.main.run() } else { dispatchMain() }
    }

    @Sendable static func tell(_ event: StallEvent) {
        switch event {
        case .began: say("began")
        case .ended(let report): say("told \(report.state.rawValue)")
        default: break
        }
    }
}

/// At once, though it is no terminal.
func say(_ text: String) {
    print(text)
    fflush(nil)
}
