import Locking
public import StallReports
package import RunLoopKit

extension StallMonitor {
    /// The present state of the watched loops, for an endpoint that a load balancer or a supervisor queries.
    ///
    /// It is read from memory alone, so it does not wait for a loop or a disk.
    public struct Health: Hashable, Sendable {
        /// The state in one word.
        public enum State: String, Hashable, Sendable {
            /// No watched loop is stalled.
            case healthy
            /// No stall is known, but the monitor cannot do all of its work, is paused or does not run (``Health/problems``). That is no
            /// reason to restart the server.
            case degraded
            /// A loop is stalled.
            case stalled
        }

        /// Ongoing stalls, longest first. Includes those that are only counted and not reported. A long job of a task pool does
        /// not count: the other workers serve the other jobs.
        public var stalls: [Stall]
        /// What the monitor cannot do, or does not do because it is paused, switched off or stopped.
        public var problems: [StallMonitorError]

        /// `stalled` if there is a stall, even if there are also problems.
        public var state: State {
            if !stalls.isEmpty { return .stalled }
            return problems.isEmpty ? .healthy : .degraded
        }

        /// A present stall.
        public struct Stall: Hashable, Sendable {
            /// The type of the watched loop.
            public var type: WatchedType
            /// The label of the watched loop.
            public var label: String
            /// How long it had lasted when the loop was last looked at, without excluded time. The time since then is one to two ticks, unless the
            /// whole process is stopped: the next look decides whether it counts.
            public var lasting: Duration
        }
    }

    /// The present state of the watched loops. Any thread; takes locks briefly, and waits for no loop. Call it on a thread that
    /// does not run a watched loop: an answer computed on the main loop cannot say that the main loop is stalled.
    public var health: Health {
        guard let engine else {
            // Also in a fork's child, where the lock may be held forever.
            if let disarmed { return Health(disarmed) }
            let wasSwitchedOff = lifecycle.withLock { if case .idle = $0 { true } else { false } }
            return Health(StallMonitorError(wasSwitchedOff ? .switchedOff : .stopped))
        }
        return Health(engine, feed)
    }

    /// What the monitor has counted and what it has cost so far, or in total once it is stopped. Any thread; takes locks briefly.
    /// Nil for a monitor that has not run.
    package var figures: Figures? { engine.map { $0.figures(isOver: false) } ?? lastFigures }

    package struct Figures: Sendable {
        package struct Watched: Sendable {
            package var type: WatchedType
            package var label: String
            package var time: Duration
            package var turns: UInt64?
            package var turnDurations: TurnDurations?
            /// Since the watch began.
            package var turnLengths: TurnHistogram
        }

        package var watched: [Watched]
        package var captures: Int
        package var captureFailures: Int
        package var cost: Cost
    }

    package struct Cost: Sendable {
        /// Processor time of all threads of the monitor.
        package var processor: Duration
        /// Time for which watched threads were held.
        package var held: Duration
        package var bytesWritten: Int64
        /// Reports that will not reach the disk, as `RunRecord.lostWrites` has them.
        package var lost: Int64
    }
}

extension StallMonitor.Health {
    /// The counts of a running monitor.
    init(_ engine: Engine, _ feed: EventFeed) {
        let counts = engine.ledger.snapshot
        let problems = feed.faults + [counts.pause].compactMap(\.self)
        self.init(stalls: counts.stalls, problems: problems.sorted { $0.code.name < $1.code.name })
    }

    /// The health of a monitor that does not run.
    init(_ reason: StallMonitorError) { self.init(stalls: [], problems: [reason]) }
}

extension WatchdogLedger.Counts {
    /// The watches that are paused; nil if there are none.
    var pause: StallMonitorError? {
        let all = watches.values.filter { !$0.name.isOfJobs }
        let paused = all.count { $0.pausedSince != nil }
        return paused > 0 ? StallMonitorError(.paused, "\(paused) of \(all.count) are paused.") : nil
    }

    /// The ongoing stalls, longest first.
    var stalls: [StallMonitor.Health.Stall] {
        let stalls = ongoing.values.map { stall in
            StallMonitor.Health.Stall(type: stall.name.type, label: stall.name.label, lasting: stall.lasting)
        }
        return stalls.sorted { $0.lasting > $1.lasting }
    }
}

extension Engine {
    /// - Parameter isOver: Whether nothing is written any more, so that what still waits is lost.
    func figures(isOver: Bool) -> StallMonitor.Figures {
        let counts = ledger.snapshot
        return StallMonitor.Figures(
            // A pool's time counts once, however it is watched.
            watched: counts.totals(at: .now).filter { !$0.key.isOfJobs }.map { name, total in
                StallMonitor.Figures.Watched(
                    type: name.type,
                    label: name.label,
                    time: total.time,
                    turns: total.turns,
                    turnDurations: .init(total.lengths),
                    turnLengths: total.lengths
                )
            },
            captures: counts.captures,
            captureFailures: counts.captureFailures,
            cost: cost(isOver: isOver)
        )
    }

    private func cost(isOver: Bool) -> StallMonitor.Cost {
        let totals = parts.meter.totals
        let processor = totals.watching &+ totals.reporting &+ totals.writing
        return StallMonitor.Cost(
            processor: .nanoseconds(Int64(clamping: processor)),
            held: .nanoseconds(Int64(clamping: totals.held)),
            bytesWritten: parts.writer.status.bytesWritten,
            lost: Int64(clamping: parts.lostReports(isOver: isOver))
        )
    }
}
