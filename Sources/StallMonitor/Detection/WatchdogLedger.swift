import Locking
import RunLoopKit
import StackCapture
import StallReports

/// What the watchdog has done so far, for the run record. Written by the watchdog, read by the reporter.
final class WatchdogLedger: Sendable {
    struct Counts: Sendable {
        var looks = 0
        /// Looks at single loops: of one that sleeps there are none.
        var visits = 0
        var lateLooks = 0
        var captures = 0
        var raced = 0
        var captureFailures = 0
        /// What became of the budget for captures. Nil before the first look.
        var budget: CostBudget.Account?
        /// The watches under way, by their numbers.
        var watches: [Int: WatchRecord] = [:]
        /// What the watches that are over add up to, by what they watched: bounded, however many loops come and go.
        var past: [WatchName: WatchTotal] = [:]
        /// Processes that were watched from outside, the latest last.
        var targets: [ProcessIdentity] = []
        var pauses = PauseTally()
        /// What looked like stalls and was none.
        var dismissed: [PauseKind: Int64] = [:]
        /// The stalls under way, by their numbers: what stands, and since when.
        var standing: [Int: (name: WatchName, since: MonotonicInstant)] = [:]
    }

    struct WatchRecord: Sendable {
        var name: WatchName
        var since: MonotonicInstant
        /// The loop's turns count from its birth, modulo 2^40.
        var firstTurn: UInt64
        /// What the loop itself counts is read when it is asked for: it costs the watchdog nothing. Nil for a loop that publishes nothing.
        var heartbeat: (any WatchedHeartbeat)?
        /// For how long nobody looked, and since when nobody does.
        var paused = Duration.zero
        var pausedSince: MonotonicInstant?

        func total(at time: MonotonicInstant) -> WatchTotal {
            WatchTotal(
                time: max(.zero, (pausedSince ?? time) - since - paused),
                turns: heartbeat.map { ($0.turnCount &- firstTurn) & (1 << 40 - 1) },
                lengths: heartbeat?.turnHistogram ?? TurnHistogram(),
                longestFunctions: heartbeat?.longestFunctions ?? [],
                underWay: pausedSince == nil ? 1 : 0
            )
        }
    }

    struct WatchTotal: Hashable, Sendable {
        var time = Duration.zero
        /// Nil: nobody counts them.
        var turns: UInt64?
        var lengths = TurnHistogram()
        /// Where the longest began, then those that awaited it; empty if that is not known.
        var longestFunctions: [UInt] = []
        /// Watches that are neither over nor paused.
        var underWay = 0

        static func + (a: WatchTotal, b: WatchTotal) -> WatchTotal {
            WatchTotal(
                time: a.time + b.time,
                turns: a.turns.map { $0 &+ (b.turns ?? 0) } ?? b.turns,
                lengths: a.lengths + b.lengths,
                longestFunctions: b.lengths.longest > a.lengths.longest ? b.longestFunctions : a.longestFunctions,
                underWay: a.underWay + b.underWay
            )
        }
    }

    private let counts = ForkSafeMutex(Counts())

    func update(_ change: (inout sending Counts) -> Void) {
        counts.withLock { change(&$0) }
    }

    var snapshot: Counts { counts.withLock { $0 } }
}

extension WatchdogLedger.Counts {
    /// Names of watches that are over, before further ones are counted together.
    private static let nameLimit = 256

    /// While the watcher is attached still.
    mutating func endWatch(_ number: Int, at time: MonotonicInstant) {
        guard let watch = watches.removeValue(forKey: number) else { return }
        // Names can be new for ever, as those of threads with a number in them.
        let isKnown = past[watch.name] != nil || past.count < Self.nameLimit
        let name = isKnown ? watch.name : WatchName(type: watch.name.type, label: "(others)")
        var total = watch.total(at: time)
        total.underWay = 0
        past[name, default: .init()] = past[name, default: .init()] + total
    }

    /// What was watched until `time`, by name.
    func totals(at time: MonotonicInstant) -> [WatchName: WatchdogLedger.WatchTotal] {
        watches.values.reduce(into: past) { totals, watch in
            totals[watch.name] = totals[watch.name, default: .init()] + watch.total(at: time)
        }
    }

    /// What became of a capture.
    mutating func count(_ stack: StackOutcome) {
        switch stack {
        case .captured: captures += 1
        case .raced: raced += 1
        case .failed, .unavailable: captureFailures += 1
        }
    }
}

extension ExpectedSlowness {
    /// Scopes that are summed up in the run record.
    convenience init(kind: PauseKind = .expectedSlow, ledger: WatchdogLedger) {
        self.init(kind: kind) { kind, length in ledger.update { $0.pauses.sum(kind, lasting: length) } }
    }
}

/// When the run record is brought up to date: soon after the start, then at growing distances, half a minute at most.
struct CheckpointSchedule {
    private var next: MonotonicInstant
    private var distance: Duration = .milliseconds(500)

    init(start: MonotonicInstant) {
        next = start + distance
    }

    mutating func isDue(at time: MonotonicInstant) -> Bool {
        guard time >= next else { return false }
        distance = min(distance * 2, .seconds(30))
        next = time + distance
        return true
    }
}
