import RunLoopKit
import StackCapture
import Synchronization

/// What the watchdog has done so far, for the run record. Written by the watchdog, read by the reporter.
final class WatchdogLedger: Sendable {
    struct Counts: Hashable, Sendable {
        var looks = 0
        var lateLooks = 0
        var captures = 0
        var raced = 0
        var captureFailures = 0
        /// CPU time of the watchdog's thread, nanoseconds.
        var cpuNanoseconds: UInt64 = 0
        /// Time for which captures held a watched thread, nanoseconds.
        var heldNanoseconds: UInt64 = 0
        /// What became of the budget for captures. Nil before the first look.
        var budget: CostBudget.Account?
        /// The watches under way, by their numbers.
        var watches: [Int: WatchRecord] = [:]
        /// What the watches that are over add up to, by what they watched: bounded, however many loops come and go.
        var past: [WatchName: WatchTotal] = [:]
    }

    struct WatchRecord: Hashable, Sendable {
        var name: WatchName
        var since: MonotonicInstant
        var turns: UInt64 = 0

        func total(at time: MonotonicInstant) -> WatchTotal { WatchTotal(time: time - since, turns: turns) }
    }

    struct WatchTotal: Hashable, Sendable {
        var time = Duration.zero
        var turns: UInt64 = 0

        static func + (a: WatchTotal, b: WatchTotal) -> WatchTotal {
            WatchTotal(time: a.time + b.time, turns: a.turns &+ b.turns)
        }
    }

    private let counts = Mutex(Counts())

    func update(_ change: (inout sending Counts) -> Void) {
        counts.withLock { change(&$0) }
    }

    var snapshot: Counts { counts.withLock { $0 } }
}

extension WatchdogLedger.Counts {
    mutating func endWatch(_ number: Int, turns: UInt64, at time: MonotonicInstant) {
        guard var watch = watches.removeValue(forKey: number) else { return }
        watch.turns = turns
        past[watch.name, default: .init()] = past[watch.name, default: .init()] + watch.total(at: time)
    }

    /// What was watched until `time`, by name.
    func totals(at time: MonotonicInstant) -> [WatchName: WatchdogLedger.WatchTotal] {
        watches.values.reduce(into: past) { totals, watch in
            totals[watch.name] = totals[watch.name, default: .init()] + watch.total(at: time)
        }
    }

    mutating func count(_ stack: StackOutcome) {
        switch stack {
        case .captured(let stack):
            captures += 1
            heldNanoseconds += stack.cost.heldNanoseconds
        case .raced: raced += 1
        case .failed, .unavailable: captureFailures += 1
        }
    }
}
