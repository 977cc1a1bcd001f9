import Dispatch
import Glibc
import StallMonitor
import StallMonitorLoops
import StallReports

/// A process with third-party loops: `loop-host DIRECTORY SCENE`. It prints the monitor's events and the scene's
/// output; the reports are in the directory.
@main
struct LoopHost {
    static func main() {
        let arguments = CommandLine.arguments
        guard arguments.count == 3, let scene = Scene(rawValue: arguments[2]) else {
            say("usage: loop-host DIRECTORY \(Scene.allCases.map(\.rawValue).joined(separator: "|"))")
            exit(2)
        }
        scene.play(directory: arguments[1])
    }

    static func start(_ directory: String, watching selection: WatchSelection = .everyLoop) -> StallMonitor {
        StallMonitor.start(.init(directory: directory, repeats: .everyStall), watching: selection) { event in
            switch event {
            case .began(let report): say("began \(report.watched.label)")
            case .ended(let report): say("ended \(report.watched.label)")
            case .fault(let fault): say("fault \(fault)")
            default: break
            }
        }
    }

    /// Ends the monitor once it has reported every stall that is over: beside other load the names on the stacks can take longer than
    /// `stop` waits.
    static func stop(_ monitor: StallMonitor) {
        let reported = DispatchSemaphore(value: 0)
        monitor.settle { reported.signal() }
        _ = reported.wait(timeout: .now() + .seconds(90))
        monitor.stop()
    }
}

/// One write each: safe beside other threads, and in a forked child.
func say(_ text: String) {
    let line = text + "\n"
    _ = unsafe line.utf8.withContiguousStorageIfAvailable { unsafe write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}
