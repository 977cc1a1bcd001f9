import Glibc
import RunLoopKit
import StallReports

extension Scenario {
    /// The thread is runnable, but does not get a CPU.
    static let starved: [Scenario] = [
        .stall("starved-by-threads", .starved, on: .worker, [.starved], culprit: "computeUntilTold") { stage in
            let isDone = StopFlag()
            let thread = try stage.threadOfPlace()
            let busy = BusyThreads(8, cpu: 0)
            stage.afterwards(.milliseconds(800)) {
                busy.stop()
                setPriority(of: thread, to: 0)
                isDone.stop()
            }
            stage.stall {
                bindThread(to: 0)
                setPriority(of: thread, to: 19)
                return computeUntilTold(isDone)
            }
        },
        .stall("starved-by-quota", .starved, on: .mainLoop, [.starved], culprit: "computeInOwnCode") { stage in
            let group = try ControlGroup.withQuota(percent: 20)
            defer { group.leave() }
            try group.enter()
            stage.stall { computeInOwnCode(until: .now.advanced(by: .seconds(4))) }
        },
    ]

    /// The thread waits for a disk, in a system call or at a page fault.
    static let disk: [Scenario] = [
        .stall("fsync", .disk, on: .mainActor, [.diskWait], culprit: "syncFile") { stage in
            let file = try ScratchFile()
            stage.stall { syncFile(file, until: .now.advanced(by: Stage.usualLength)) }
        },
        .stall("major-faults", .disk, on: .worker, [.diskWait], culprit: "readMappedFile") { stage in
            let file = try ScratchFile()
            stage.stall { readMappedFile(file, until: .now.advanced(by: Stage.usualLength)) }
        },
    ]
}

/// From -20, the most urgent, to 19 (setpriority(2)).
private func setPriority(of thread: Int32, to nice: Int32) {
    _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(thread), nice)
}

@inline(never)
func computeUntilTold(_ isDone: StopFlag) -> Int {
    var sum = 1
    while !isDone.isStopped {
        for step in 0..<2_000 { sum = sum &* 31 &+ step }
    }
    return sum
}

extension Stage {
    /// The kernel's number of the thread whose turns the scenario is about.
    func threadOfPlace() throws -> Int32 {
        guard let thread = loop.thread else { throw SkippedScenario("the loop has no thread yet") }
        return thread.id
    }
}
