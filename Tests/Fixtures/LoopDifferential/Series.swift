import Foundation
import Synchronization

/// Plays many scripts, several in parallel.
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

    /// Returns whether all traces were equal.
    func run() -> Bool {
        let workers = (0..<max(1, options.jobs)).map { _ in LoopThread { self.work() } }
        for worker in workers { worker.join() }
        summarize()
        return state.withLock { $0.failures == 0 }
    }

    private func work() {
        // One main loop plays many scripts, because starting a process is slow.
        let most = options.isMain ? 100 : 1
        while let numbers = state.withLock({ state in take(most, &state) }) {
            for (index, comparison) in zip(numbers, comparisons(numbers)) {
                if !comparison.areEqual {
                    if state.withLock({ $0.failures >= options.failureLimit }) { return }
                    lookInto(index, comparison)
                }
                count(comparison)
            }
        }
    }

    private func comparisons(_ numbers: Range<Int>) -> [Comparison] {
        guard options.isMain else { return numbers.map { Comparison(options.script($0), options: options) } }
        var batch = options
        batch.first = numbers.lowerBound
        batch.scripts = numbers.count
        return Comparison.onMain(batch)
    }

    private func take(_ most: Int, _ state: inout State) -> Range<Int>? {
        guard state.next < options.scripts, state.failures < options.failureLimit else { return nil }
        let first = state.next
        state.next = min(options.scripts, first + most)
        return first..<state.next
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

    /// A script whose traces differ is played again, alone, to detect differences that occur only sometimes.
    private func lookInto(_ index: Int, _ first: Comparison) {
        var alone = options
        alone.scriptSeed = options.scriptSeed ?? options.seed(of: index)
        alone.first = 0
        alone.scripts = 1
        let again = (0..<3).count { _ in differs(alone) }
        if again == 3 { Shrinker(stillFails: differs).shrink(&alone) }
        alone.isVerbose = true
        let comparison = again < 3 ? first : compare(alone)
        state.withLock { state in
            state.replays += 3
            if again < 3 { state.fickle += 1 }
            state.failures += 1
        }
        let head = "DIFFERENT: script \(index), --script-seed \(alone.scriptSeed ?? 0)"
        let note = again < 3 ? ", but alone only \(again) times of 3" : ""
        say([head + note, "\(alone.script(0))", comparison.report, ""].joined(separator: "\n"))
    }

    private func differs(_ options: Options) -> Bool { !compare(options).areEqual }

    private func compare(_ options: Options) -> Comparison {
        guard options.isMain else {
            return Comparison(options.script(0), options: options, isVerbose: options.isVerbose)
        }
        return Comparison.onMain(options)[0]
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
