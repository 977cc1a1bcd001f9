import Locking
import RunLoopKit
import StallDetection
import StallReports

/// The watchdog's counts so far, for the run record. Written by the watchdog, read by the reporter.
final class WatchdogLedger: Sendable {
    struct Counts: Sendable {
        var looks = 0
        /// Looks at single loops. Sleeping loops are not looked at.
        var loopLooks = 0
        var lateLooks = 0
        var captures = 0
        var raced = 0
        var captureFailures = 0
        /// The state of the budget for captures. Nil before the first look.
        var budget: CostBudget.Account?
        /// The present watches, keyed by their numbers.
        var watches: [Int: WatchRecord] = [:]
        /// The sums of the watches that have ended, keyed by name. Their number is bounded, however many loops begin and end.
        var past: [WatchName: WatchTotal] = [:]
        /// Processes that were watched from outside. The latest is last.
        var targets: [ProcessIdentity] = []
        var pauses = PauseTally()
        /// When the startup grace began, and how long it is. Nil without one.
        var startup: (since: MonotonicInstant, grace: Duration)?
        /// Dismissed candidates, by reason.
        var dismissed: [PauseKind: Int64] = [:]
        /// The ongoing stalls, keyed by their numbers: which loop, and the length at its latest look, as in reports. Without long
        /// jobs.
        var ongoing: [Int: (name: WatchName, lasting: Duration)] = [:]
    }

    struct WatchRecord: Sendable {
        var name: WatchName
        var since: MonotonicInstant
        /// How many turns the loop had made before, modulo 2^40.
        var firstTurn: UInt64 = 0
        /// See ``WatchedLoop/lengthsBefore``.
        var firstLengths = TurnHistogram()
        /// The source of the loop's own counts. They are read only when the record is made, so they cost the watchdog nothing.
        /// Nil for a loop that publishes nothing.
        var heartbeat: (any WatchedHeartbeat)?
        /// How long the watch was paused, and since when it is paused now.
        var paused = Duration.zero
        var pausedSince: MonotonicInstant?

        /// Whether there was anything to watch. A server's main thread may wait elsewhere and never run its loop: nobody would have seen it
        /// stall. A queue without work is watched.
        private var hasTurned: Bool { name.type != .runLoop || heartbeat?.pulse.rawValue != 0 }

        func total(at time: MonotonicInstant) -> WatchTotal {
            let lengths = heartbeat?.turnHistogram.since(firstLengths) ?? TurnHistogram()
            let isLongestKnown = lengths.longest > firstLengths.longest
            return WatchTotal(
                time: hasTurned ? max(.zero, (pausedSince ?? time) - since - paused) : .zero,
                turns: heartbeat.map { ($0.turnCount &- firstTurn) & (1 << 40 - 1) },
                lengths: lengths,
                longestFunctions: isLongestKnown ? heartbeat?.longestFunctions ?? [] : [],
                underWay: hasTurned && pausedSince == nil ? 1 : 0
            )
        }
    }

    struct WatchTotal: Hashable, Sendable {
        var time = Duration.zero
        /// Nil if turns are not counted.
        var turns: UInt64?
        var lengths = TurnHistogram()
        /// The function in which the longest job began, then those that awaited it. Empty if unknown.
        var longestFunctions: [UInt] = []
        /// The number of watches that have not ended and are not paused. Readers add the time since the record was written for each of them.
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
    /// How many names of ended watches are kept. Further ones are counted together.
    private static let nameLimit = 256

    /// Call it while the watcher is still attached.
    mutating func endWatch(_ number: Int, at time: MonotonicInstant) {
        guard let watch = watches.removeValue(forKey: number) else { return }
        // Every watch may have a new name, such as a thread name with a number in it.
        let isKnown = past[watch.name] != nil || past.count < Self.nameLimit
        let name = isKnown ? watch.name : nameOfOthers(watch.name)
        var total = watch.total(at: time)
        total.underWay = 0
        past[name, default: .init()] = past[name, default: .init()] + total
    }

    /// The name under which loops are counted together: by type and, of a watcher of other processes, by service.
    private func nameOfOthers(_ name: WatchName) -> WatchName {
        var others = WatchName(type: name.type, label: "(others)", service: name.service)
        // There may be any number of services, too.
        if past[others] == nil, past.count >= Self.nameLimit * 2 { others.service = nil }
        return others
    }

    /// Everything watched until `time`, by name.
    func totals(at time: MonotonicInstant) -> [WatchName: WatchdogLedger.WatchTotal] {
        watches.values.reduce(into: past) { totals, watch in
            totals[watch.name] = totals[watch.name, default: .init()] + watch.total(at: time)
        }
    }

    /// The pauses until `time`, with as much of the startup grace as is over.
    func pauses(until time: MonotonicInstant) -> PauseTally {
        var tally = pauses
        if let startup { tally.sum(.startup, lasting: min(startup.grace, max(.zero, time - startup.since))) }
        return tally
    }

    /// Counts a capture by its outcome.
    mutating func count(_ stack: StackOutcome) {
        switch stack {
        case .captured: captures += 1
        case .raced: raced += 1
        case .failed, .unavailable: captureFailures += 1
        }
    }
}

extension ExpectedSlowness {
    /// Creates scopes whose time is summed in the run record.
    convenience init(kind: PauseKind = .expectedSlow, ledger: WatchdogLedger) {
        self.init(kind: kind) { kind, length in ledger.update { $0.pauses.sum(kind, lasting: length) } }
    }
}

/// The pauses of a run so far: the latest ones individually, and the sums of all.
struct PauseTally: Hashable, Sendable {
    private(set) var latest: [RunRecord.Pause] = []
    private(set) var totals: [PauseKind: RunRecord.PauseTotal] = [:]

    /// The number of pauses. Scopes, a late watchdog and clock changes are not pauses.
    var count: Int64 {
        let counted: [PauseKind] = [.suspended, .frozen, .traced, .stopped, .monitoringPaused]
        return counted.reduce(0) { $0 + (totals[$1]?.count ?? 0) }
    }

    mutating func add(_ pause: RunRecord.Pause) {
        totals[pause.kind, default: .init()].add(pause.durationNs)
        if latest.count == RunRecord.PauseLog.recordLimit { latest.removeFirst() }
        latest.append(pause)
    }

    /// Adds time of a kind that is only summed.
    mutating func sum(_ kind: PauseKind, lasting length: Duration) {
        totals[kind, default: .init()].add(length.nanoseconds)
    }

    var log: RunRecord.PauseLog {
        .init(latest: latest, totals: Dictionary(uniqueKeysWithValues: totals.map { ($0.rawValue, $1) }))
    }
}

extension RunRecord.PauseTotal {
    /// Saturates: a clock that is set back and forth can exceed 64 bits.
    fileprivate mutating func add(_ length: Int64) {
        count = count.addingSaturated(1)
        durationNs = durationNs.addingSaturated(length)
    }
}

/// When to update the run record: soon after the start, then at growing intervals of at most half a minute.
struct CheckpointSchedule {
    private var next: MonotonicInstant
    private var interval = DoublingInterval(from: .milliseconds(500), upTo: .seconds(30))

    init(start: MonotonicInstant) { next = start + interval.next() }

    mutating func isDue(at time: MonotonicInstant) -> Bool {
        guard time >= next else { return false }
        next = time + interval.next()
        return true
    }
}
