import Dispatch
import FoundationEssentials
import Glibc
import StallReading
import Synchronization

/// Plays each scenario in a separate process: a scenario that crashes or hangs does not affect the others.
package struct CorpusRun: Sendable {
    /// The command that starts a child: the executable first.
    package var command: [String]
    /// Whether a child may be started with a preloaded library.
    package var canPreload = true
    /// The directory of reports and outputs; it must exist.
    package var directory: String
    /// The number of threads that keep the CPUs busy during the run.
    package var load = 0
    /// The quota of one CPU that each child gets, in percent. Nil for no limit.
    package var quota: Int?
    /// How often a failed scenario is played again: a disturbance by the machine may not occur twice. The outcome states the
    /// number of attempts. A false alarm is not played again.
    package var retries = 0
    /// How many of the scenarios that sleep are played at once. Scenarios that compute are played one at a time, after them.
    package var jobs = 1
    /// Called with each outcome as soon as it is known: on several threads, if there are several jobs.
    package var onOutcome: @Sendable (Outcome) -> Void = { _ in }

    package init(command: [String], directory: String) {
        (self.command, self.directory) = (command, directory)
    }

    /// Plays the scenarios on a separate thread.
    package func play(_ scenarios: [Scenario]) async -> CorpusResult {
        await withCheckedContinuation { continuation in
            startThread(named: "corpus-runner") {
                continuation.resume(returning: playAll(scenarios))
            }
        }
    }

    private func playAll(_ scenarios: [Scenario]) -> CorpusResult {
        let busy = BusyThreads(load)
        let group = quota.flatMap { try? ControlGroup.withQuota(percent: $0) }
        defer {
            busy.stop()
            group?.leave()
        }
        let together = scenarios.indices.filter { jobs > 1 && scenarios[$0].part.sleeps }
        var outcomes = playAtOnce(together, of: scenarios, in: group)
        for index in scenarios.indices where outcomes[index] == nil {
            outcomes[index] = playAgainIfNeeded(scenarios[index], in: group)
        }
        return CorpusResult(outcomes: scenarios.indices.compactMap { outcomes[$0] })
    }

    /// Plays some of the scenarios, as many at once as there are jobs.
    ///
    /// - Returns: The outcome of each, by its index.
    private func playAtOnce(_ together: [Int], of scenarios: [Scenario], in group: ControlGroup?) -> [Int: Outcome] {
        let outcomes = Mutex<[Int: Outcome]>([:])
        let next = Atomic(0)
        let over = DispatchGroup()
        for _ in 0..<min(jobs, together.count) {
            over.enter()
            startThread(named: "corpus-runner") {
                while case let turn = next.add(1, ordering: .relaxed).oldValue, turn < together.count {
                    let outcome = playAgainIfNeeded(scenarios[together[turn]], in: group)
                    outcomes.withLock { $0[together[turn]] = outcome }
                }
                over.leave()
            }
        }
        over.wait()
        return outcomes.withLock { $0 }
    }

    private func playAgainIfNeeded(_ scenario: Scenario, in group: ControlGroup?) -> Outcome {
        var outcome = play(scenario, in: group, attempt: 0)
        while !outcome.passed, outcome.falseAlarms.isEmpty, outcome.attempts <= retries {
            let attempts = outcome.attempts
            outcome = play(scenario, in: group, attempt: attempts)
            outcome.attempts = attempts + 1
        }
        onOutcome(outcome)
        return outcome
    }

    private func play(_ scenario: Scenario, in group: ControlGroup?, attempt: Int) -> Outcome {
        let place = "\(directory)/\(scenario.name)" + (attempt == 0 ? "" : ".\(attempt)")
        if let problem = make(place) { return Outcome(scenario, failure: problem) }
        var variables = [ScenarioProcess.nameVariable: scenario.name, ScenarioProcess.directoryVariable: place]
        if let group { variables[ScenarioProcess.groupVariable] = group.path }
        if scenario.needs == .fakeClock {
            guard canPreload, let clock = FakeClock(in: place) else {
                return Outcome(scenario, skipped: "libfaketime cannot be loaded here")
            }
            variables.merge(clock.variables) { $1 }
        }
        // A quota of a fifth makes everything five times slower.
        let limit = Duration.seconds(quota == nil ? 60 : 180)
        let end = ChildProcess.run(command, adding: variables, output: place + "/output.txt", within: limit)
        if let problem = end.problem { return Outcome(scenario, failure: problem) }
        guard let receipt = Receipt(in: place) else { return Outcome(scenario, failure: "it left no receipt") }
        let contents = try? ReportReader(path: place + "/reports").contents()
        return Outcome(scenario, receipt, contents?.reports ?? [])
    }

    /// Creates a directory for one scenario; fails if an earlier run has left one. Returns nil, or the reason of the failure.
    func make(_ place: String) -> String? {
        unsafe mkdir(directory, 0o700)
        guard unsafe mkdir(place, 0o700) == 0 else {
            return unsafe "\(place) could not be made: \(String(cString: strerror(errno)))"
        }
        return nil
    }
}

/// A faked clock for one process, provided by libfaketime: only the wall clock, read from the file each time.
struct FakeClock {
    let variables: [String: String]

    private static let libraries = ["x86_64-linux-gnu", "aarch64-linux-gnu"].map {
        "/usr/lib/\($0)/faketime/libfaketimeMT.so.1"
    }

    init?(in directory: String) {
        guard let library = Self.libraries.first(where: { unsafe access($0, R_OK) == 0 }) else { return nil }
        let file = directory + "/clock"
        guard writeFile("+0\n", to: file, creating: true) else { return nil }
        variables = [
            "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": file, "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        ]
    }
}
