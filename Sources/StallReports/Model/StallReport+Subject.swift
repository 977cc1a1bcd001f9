// Who stood still, and by which rule.

extension StallReport {
    /// The rule that fired, with its settings.
    public struct Rule: Codable, Hashable, Sendable {
        /// Equal to the report's `kind`.
        public var name: StallKind
        /// Nanoseconds between two looks at the loop.
        public var tickNs: Int64
        /// Looks in a row that make a stall; for `repeated`, how many of them each turn exceeds.
        public var ticks: Int
        /// For `repeated`: how many such turns in a row make a stall.
        public var turns: Int?

        /// Without turns unless given.
        public init(name: StallKind, tickNs: Int64, ticks: Int, turns: Int? = nil) {
            (self.name, self.tickNs, self.ticks, self.turns) = (name, tickNs, ticks, turns)
        }

        private enum CodingKeys: String, CodingKey {
            case name
            case tickNs = "tick_ns"
            case ticks, turns
        }
    }

    /// The watched thing, as it was at detection.
    public struct Watched: Codable, Hashable, Sendable {
        /// `runLoop`, or `eventLoop` for one that was found by its waits.
        public var type: WatchedType
        /// The name it was registered under.
        public var label: String
        /// A run loop's mode.
        public var mode: String?
        /// The last transition seen, in snake case: `before_sources`.
        public var activity: String?
        /// Turns finished since the loop began. Nil of a task pool.
        public var turn: UInt64?
        /// Of the loop since its watch began (of a task pool: its jobs, since it began), those of the stall included as far as they are over. Nil before its first turn.
        public var turnDurations: TurnDurations?

        /// A run loop, without mode, activity and turns, unless given.
        public init(
            type: WatchedType = .runLoop,
            label: String,
            mode: String? = nil,
            activity: String? = nil,
            turn: UInt64? = nil,
            turnDurations: TurnDurations? = nil
        ) {
            (self.type, self.label, self.mode, self.activity, self.turn) = (type, label, mode, activity, turn)
            self.turnDurations = turnDurations
        }

        private enum CodingKeys: String, CodingKey {
            case type, label, mode, activity, turn
            case turnDurations = "turn_durations"
        }
    }

    /// A thread of the process.
    public struct Thread: Codable, Hashable, Sendable {
        /// The kernel's number for it (gettid(2)).
        public var id: Int32
        /// The thread's own, 15 bytes at most (proc(5), `comm`). Nil when it could not be read.
        public var name: String?
        /// One letter of proc(5): R, S, D, T, …
        public var state: String?

        /// Name and state are nil unless given, which means: not read.
        public init(id: Int32, name: String? = nil, state: String? = nil) {
            (self.id, self.name, self.state) = (id, name, state)
        }
    }

    /// The distributed trace that the stalled work belonged to, as the server says.
    public struct Trace: Codable, Hashable, Sendable {
        /// As the tracer writes it.
        public var traceID: String
        /// As the tracer writes it. Nil when only the trace is known.
        public var spanID: String?

        /// Without a span unless given.
        public init(traceID: String, spanID: String? = nil) {
            (self.traceID, self.spanID) = (traceID, spanID)
        }

        private enum CodingKeys: String, CodingKey {
            case traceID = "trace_id"
            case spanID = "span_id"
        }
    }

    /// What the stalled thread and the machine paid for this report.
    public struct MonitorCost: Codable, Hashable, Sendable {
        /// Nanoseconds the stalled thread was held; 0 after a quiet capture.
        public var heldNs: Int64
        /// Nanoseconds spent on unwinding, while the stalled thread ran on. All captures of the stall together.
        public var unwindNs: Int64
        /// Nanoseconds spent on finding names, away from the stalled thread.
        public var symbolicationNs: Int64
        /// Bytes of stack copied.
        public var copiedBytes: Int64
        /// One line for a person: why names or lines are missing that the budget for them did not permit. Nil if it did.
        public var symbolicationNote: String?
        /// Processor time of the watchdog's thread from when the loop stood still until this was written, whatever else it watched.
        public var watchdogCPUNs: Int64?
        /// Processor time of composing this report, names included.
        public var reporterCPUNs: Int64?
        /// Why there are fewer samples, or no stacks: the state of the monitor's budget, `thinned`, `stopped` or `trial`. Nil if it
        /// held.
        public var budget: String?

        /// All zero unless given.
        public init(
            heldNs: Int64 = 0,
            unwindNs: Int64 = 0,
            symbolicationNs: Int64 = 0,
            copiedBytes: Int64 = 0,
            symbolicationNote: String? = nil
        ) {
            (self.heldNs, self.unwindNs) = (heldNs, unwindNs)
            (self.symbolicationNs, self.copiedBytes) = (symbolicationNs, copiedBytes)
            self.symbolicationNote = symbolicationNote
        }

        private enum CodingKeys: String, CodingKey {
            case heldNs = "held_ns"
            case unwindNs = "unwind_ns"
            case symbolicationNs = "symbolication_ns"
            case copiedBytes = "copied_bytes"
            case symbolicationNote = "symbolication_note"
            case watchdogCPUNs = "watchdog_cpu_ns"
            case reporterCPUNs = "reporter_cpu_ns"
            case budget
        }
    }
}
