import CEventLoops
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

    /// - Parameter probes: How often the monitor's health endpoint is asked. 0: it has none.
    static func start(
        _ directory: String,
        watching selection: WatchSelection = .everyLoop,
        probes: Int = 0
    ) -> StallMonitor {
        let health = probes > 0 ? StallMonitor.Configuration.HealthOptions(port: 0) : nil
        let configuration = StallMonitor.Configuration(directory: directory, repeats: .everyStall, health: health)
        let monitor = StallMonitor.start(configuration, watching: selection) { event in
            switch event {
            case .began(let report): say("began \(report.watched.label)")
            case .ended(let report): say("ended \(report.watched.label)")
            case .fault(let fault): say("fault \(fault)")
            default: break
            }
        }
        for _ in 0..<probes { event_probe(Int32(monitor.healthPort ?? 0)) }
        return monitor
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
