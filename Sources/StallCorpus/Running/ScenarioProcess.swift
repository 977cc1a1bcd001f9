import Glibc
import RunLoopKit
import StallMonitor
import StallReports

/// The process that a scenario is played in. It is told by its environment what to play: a program with libfaketime loaded finds no
/// arguments, because that library moves them.
package struct ScenarioProcess: Sendable {
    private let name: String
    private let directory: String

    static let nameVariable = "STALL_CORPUS_SCENARIO"
    static let directoryVariable = "STALL_CORPUS_DIRECTORY"
    static let groupVariable = "STALL_CORPUS_GROUP"

    /// What the calling process was started for. Nil when it is no scenario's.
    package static var requested: ScenarioProcess? {
        guard let name = environment(nameVariable), let directory = environment(directoryVariable) else { return nil }
        return ScenarioProcess(name: name, directory: directory)
    }

    /// Plays it on a thread of its own, while the main thread turns its loop. Returns the exit code.
    package func run() async -> Int32 {
        await withCheckedContinuation { continuation in
            startThread(named: "corpus-driver") {
                continuation.resume(returning: play())
            }
        }
    }

    private func play() -> Int32 {
        if let group = Self.environment(Self.groupVariable) { writeFile("\(getpid())", to: group + "/cgroup.procs") }
        if let soak = Soak(named: name) { return soak.play(in: directory) }
        guard let scenario = Scenario.all.first(where: { $0.name == name }) else { return 64 }
        var configuration = StallMonitor.Configuration(
            directory: directory + "/reports",
            repeats: .everyStall,
            service: .init(name: "corpus")
        )
        if scenario.needs == .startupGrace { MonitorSwitches.allowStart(&configuration) }
        let monitor = StallMonitor.start(configuration)
        var receipt: Receipt
        do {
            let stage = try Stage(scenario.place, monitor: monitor, directory: directory)
            stage.rest(.milliseconds(300))
            receipt = try Self.play(scenario, on: stage)
            // The loop comes back to its rest, and what is to be reported is reported.
            stage.rest(.milliseconds(300))
        } catch let skipped as SkippedScenario {
            receipt = Receipt(skipped: skipped.reason)
        } catch {
            receipt = Receipt(failure: "\(error)")
        }
        monitor.stop()
        receipt.write(in: directory)
        return 0
    }

    private static func play(_ scenario: Scenario, on stage: Stage) throws -> Receipt {
        try scenario.play(stage)
        return stage.receipt
    }

    private static func environment(_ name: String) -> String? {
        unsafe getenv(name).map { unsafe String(cString: $0) }
    }
}
