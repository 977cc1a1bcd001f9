import RunLoopKit
import StackCapture
import Synchronization

/// What the watchdog has done so far, for the run record. Written by the watchdog, read by the reporter.
final class WatchdogLedger: Sendable {
    struct Counts: Hashable, Sendable {
        var looks = 0
        var lateLooks = 0
        var stalls = 0
        var captures = 0
        var raced = 0
        var captureFailures = 0
        /// CPU time of the watchdog's thread, nanoseconds.
        var cpuNanoseconds: UInt64 = 0
        /// Time for which captures held a watched thread, nanoseconds.
        var heldNanoseconds: UInt64 = 0
        /// By the watch's number, in the order in which the watches were made.
        var watches: [Int: WatchRecord] = [:]
    }

    struct WatchRecord: Hashable, Sendable {
        var identity: WatchIdentity
        var since: MonotonicInstant
        var until: MonotonicInstant?
        var turns: UInt64 = 0
    }

    private let counts = Mutex(Counts())

    func update(_ change: (inout sending Counts) -> Void) {
        counts.withLock { change(&$0) }
    }

    var snapshot: Counts { counts.withLock { $0 } }
}

extension WatchdogLedger.Counts {
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
