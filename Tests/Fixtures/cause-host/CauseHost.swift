import Dispatch
import Foundation
import Glibc
import RunLoopKit
import StallMonitor
import StallReading
import StallReports

/// A process with a loop that stalls, and that the test slows down from outside: `cause-host DIRECTORY compute|hogs|sleep|cost
/// MILLISECONDS`. It prints the verdict and the sentence of its longest stall, then its evidence as JSON.
@main
struct CauseHost {
    static func main() throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let milliseconds = Int(arguments[3]) else {
            print("usage: cause-host DIRECTORY compute|hogs|sleep MILLISECONDS")
            exit(2)
        }
        let (directory, scenario) = (arguments[1], arguments[2])

        let worker = try WorkerThread(name: "worker")
        let monitor = StallMonitor.start(.init(directory: directory), watching: [worker.loop])
        if scenario == "hogs" {
            for _ in 0..<8 { Thread.detachNewThread { _ = compute(milliseconds * 2) } }
        }
        let done = DispatchSemaphore(value: 0)
        worker.loop.perform {
            if scenario == "sleep" { usleep(UInt32(milliseconds) * 1_000) } else { _ = compute(milliseconds) }
            done.signal()
        }
        done.wait()
        // The end of the stall is detected at the next sample, and the report is written after that.
        usleep(300_000)
        let reported = DispatchSemaphore(value: 0)
        monitor.settle { reported.signal() }
        _ = reported.wait(timeout: .now() + .seconds(90))
        monitor.stop()
        worker.stop()

        // The test limits stack sizes to check the monitor's threads.
        // Reading the reports needs more, so it runs on a separate thread.
        let told = DispatchSemaphore(value: 0)
        let reader = Thread {
            do { try tell(directory) } catch { fatalError("\(error)") }
            told.signal()
        }
        reader.stackSize = 1 << 20
        reader.start()
        told.wait()
    }

    private static func tell(_ directory: String) throws {
        let contents = try ReportReader(path: directory).contents()
        guard let report = contents.reports.max(by: { $0.durationNs < $1.durationNs }) else {
            print("none\n")
            exit(1)
        }
        print(report.cause.verdict)
        print(report.cause.summary)
        print(String(decoding: try JSONEncoder().encode(report.cause.evidence), as: UTF8.self))
        let captures = report.stacks.reduce(0) { $0 + $1.count }
        let cost = contents.runs.last?.cost ?? .init()
        print(
            "stall \(report.durationNs / 1_000_000) ms, \(captures) captures told, watchdog \(cost.watchdogCPUNs / 1_000) us on a CPU, "
                + "thread held \(cost.heldNs / 1_000) us by \(cost.captures) captures"
        )
    }
}

@inline(never)
func compute(_ milliseconds: Int) -> Int {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(milliseconds))
    var sum = 1
    while MonotonicInstant.now < end {
        for step in 0..<1_000 { sum = sum &* 31 &+ step }
    }
    return sum
}
