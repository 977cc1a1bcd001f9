public import StallReports
import RunLoopKit

extension StallMonitor {
    /// How the watched things are now: for an endpoint that a load balancer or a supervisor asks.
    ///
    /// A moment's answer, from memory alone: neither from a loop that may stand nor from the disk.
    public struct Health: Hashable, Sendable {
        /// In one word.
        public enum State: String, Hashable, Sendable {
            /// What is watched turns.
            case healthy
            /// Nothing is known to stand, but the monitor cannot do all of its work (``Health/problems``), or does not run.
            case degraded
            /// Something stands still.
            case stalled
        }

        /// Stalls under way, the longest first. Also those that are only counted, and not reported.
        public var stalls: [Stall]
        /// What the monitor cannot do.
        public var problems: [StallMonitorError]

        /// `stalled` if something stands, whatever else is wrong.
        public var state: State { stalls.isEmpty ? problems.isEmpty ? .healthy : .degraded : .stalled }

        /// A stall under way.
        public struct Stall: Hashable, Sendable {
            /// What kind of thing stands.
            public var type: WatchedType
            /// What it is called.
            public var label: String
            /// For how long it has stood so far.
            public var lasting: Duration
        }
    }

    /// How the watched things are now. Any thread; takes locks for moments, and waits for no loop. To be asked from a thread that does not
    /// stand with them: answered on the main loop, it says `stalled` of all but that one.
    public var health: Health {
        guard isRunning, let engine else {
            return Health(stalls: [], problems: [disarmed ?? StallMonitorError(.stopped)])
        }
        return Health(engine, feed)
    }

    /// What the monitor has counted and what it has cost so far; once it is stopped, in all. Any thread; takes locks for moments. Nil for one
    /// that has not run.
    package var figures: Figures? { engine.map { $0.figures(isOver: false) } ?? lastFigures }

    package struct Figures: Sendable {
        package struct Watched: Sendable {
            package var type: WatchedType
            package var label: String
            package var time: Duration
            package var turns: UInt64?
            package var turnDurations: TurnDurations?
        }

        package var watched: [Watched]
        package var captures: Int
        package var captureFailures: Int
        package var cost: Cost
    }

    package struct Cost: Sendable {
        /// Of all threads of the monitor.
        package var processor: Duration
        /// Time that watched threads were held.
        package var held: Duration
        package var bytesWritten: Int64
        /// Reports that will not come to the disk, as `RunRecord.lostWrites` has them.
        package var lost: Int64
    }
}

extension StallMonitor.Health {
    /// Of a monitor that runs.
    init(_ engine: Engine, _ feed: EventFeed) {
        let now = MonotonicInstant.now
        let standing = engine.ledger.snapshot.standing.values.map { stall in
            Stall(type: stall.name.type, label: stall.name.label, lasting: max(.zero, now - stall.since))
        }
        self.init(
            stalls: standing.sorted { $0.lasting > $1.lasting },
            problems: feed.faults.sorted { $0.code.name < $1.code.name }
        )
    }
}

extension Engine {
    /// - Parameter isOver: nothing is written any more: what still waits is lost.
    func figures(isOver: Bool) -> StallMonitor.Figures {
        let counts = ledger.snapshot
        return StallMonitor.Figures(
            watched: counts.totals(at: .now).map { name, total in
                StallMonitor.Figures.Watched(
                    type: name.type,
                    label: name.label,
                    time: total.time,
                    turns: total.turns,
                    turnDurations: .init(total.lengths)
                )
            },
            captures: counts.captures,
            captureFailures: counts.captureFailures,
            cost: cost(isOver: isOver)
        )
    }

    private func cost(isOver: Bool) -> StallMonitor.Cost {
        let status = parts.writer.status
        let lost = status.lost + status.unmade + (isOver ? status.waitingReports : 0)
        let totals = parts.totals
        let processor = totals.watching &+ totals.reporting &+ totals.writing
        return StallMonitor.Cost(
            processor: .nanoseconds(Int64(clamping: processor)),
            held: .nanoseconds(Int64(clamping: totals.held)),
            bytesWritten: status.bytesWritten,
            lost: Int64(clamping: lost + notices.dropped["stalls", default: 0])
        )
    }
}
