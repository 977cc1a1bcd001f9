import Foundation
import Synchronization

/// Many scripts, several side by side.
final class Series: Sendable {
    private struct State: Sendable {
        var next = 0
        var compared = 0
        var events = 0
        var failures = 0
        var replays = 0
        var fickle = 0
        var meetings = Meetings()
        var tally = Tally()
    }

    private let options: Options
    private let state = Mutex(State())
    private let start = ContinuousClock.now

    init(_ options: Options) { self.options = options }

    /// Whether all were equal.
    func run() -> Bool {
        let workers = (0..<max(1, options.jobs)).map { _ in LoopThread { self.work() } }
        for worker in workers { worker.join() }
        summarize()
        return state.withLock { $0.failures == 0 }
    }

    private func work() {
        while let index = state.withLock({ state in take(&state) }) {
            let seed = options.scriptSeed ?? options.seed(of: index)
            let script = Generator.script(seed: seed)
            let comparison = Comparison(script, options: options)
            if !comparison.areEqual { lookInto(script, seed: seed, index: index) }
            count(comparison)
        }
    }

    private func take(_ state: inout State) -> Int? {
        guard state.next < options.scripts, state.failures < options.failureLimit else { return nil }
        state.next += 1
        return state.next - 1
    }

    private func count(_ comparison: Comparison) {
        let compared = state.withLock { state in
            state.compared += 1
            state.events += comparison.kit.trace.count
            state.meetings += comparison.foundation.meetings
            state.tally += comparison.kit.tally
            return state.compared
        }
        if compared.isMultiple(of: 10_000) { tell("\(compared) scripts, \(start.duration(to: .now))") }
    }

    /// A script whose traces differ is played again: what differs only now and then is told apart.
    private func lookInto(_ script: Script, seed: UInt64, index: Int) {
        let differs = { (script: Script) in !Comparison(script, options: self.options).areEqual }
        let again = (0..<3).count { _ in differs(script) }
        let smallest = again == 3 ? Shrinker(stillFails: differs).shrink(script) : script
        let comparison = Comparison(smallest, options: options, isVerbose: true)
        state.withLock { state in
            state.replays += 3
            if again < 3 { state.fickle += 1 }
            state.failures += 1
        }
        let head = "DIFFERENT: script \(index), --script-seed \(seed)" + (again < 3 ? ", but only now and then" : "")
        say([head, "\(smallest)", comparison.report, ""].joined(separator: "\n"))
    }

    private func summarize() {
        let result = state.withLock { $0 }
        say("seed: \(options.seed)")
        say("scripts: \(result.compared)")
        say("events: \(result.events)")
        say("different: \(result.failures)")
        say("replays: \(result.replays), of which now and then: \(result.fickle)")
        for event in Tally.Event.allCases { say("\(event): \(result.tally[event])") }
        for difference in KnownDifference.allCases { say("met \(difference): \(result.meetings[difference])") }
        say("time: \(start.duration(to: .now))")
    }
}

func say(_ text: String) {
    print(text)
    fflush(nil)
}

func tell(_ text: String) { FileHandle.standardError.write(Data((text + "\n").utf8)) }
