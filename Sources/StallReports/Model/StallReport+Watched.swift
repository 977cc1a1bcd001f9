// The stalled loop, its thread and its work; the rule that detected the stall; and what the report has cost.

extension StallReport {
    /// The rule that fired, with its settings.
    public struct Rule: Codable, Hashable, Sendable {
        /// Equal to the report's `kind`.
        public var name: StallKind
        /// Nanoseconds between two looks at the loop.
        public var tickNs: Int64
        /// The number of consecutive ticks that make a stall; for `repeated`, the number of ticks that each turn exceeds.
        public var ticks: Int
        /// For `repeated`: the number of consecutive such turns that make a stall.
        public var turns: Int?

        /// Creates a rule, by default without turns.
        public init(name: StallKind, tickNs: Int64, ticks: Int, turns: Int? = nil) {
            (self.name, self.tickNs, self.ticks, self.turns) = (name, tickNs, ticks, turns)
        }

        private enum CodingKeys: String, CodingKey {
            case name
            case tickNs = "tick_ns"
            case ticks, turns
        }
    }

    /// The watched loop, as it was at detection.
    public struct Watched: Codable, Hashable, Sendable {
        /// What was watched: a loop, a task pool or a queue.
        public var type: WatchedType
        /// The name under which it was registered.
        public var label: String
        /// A run loop's mode.
        public var mode: String?
        /// The last transition, in snake case: `before_sources`.
        public var activity: String?
        /// The number of turns finished since the loop began. Nil for a task pool.
        public var turn: UInt64?
        /// The durations of all turns since the watch began, including finished turns of the stall; for a task pool, of its jobs. Nil before
        /// the first one.
        public var turnDurations: TurnDurations?

        /// Creates a loop: by default a run loop without mode, activity and turns.
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
        /// The kernel's thread id (gettid(2)).
        public var id: Int32
        /// The thread's name, 15 bytes at most (proc(5), `comm`). Nil if it could not be read.
        public var name: String?
        /// The letter of proc(5): R, S, D, T, …
        public var state: String?

        /// Creates a thread. By default name and state are nil, which means not read.
        public init(id: Int32, name: String? = nil, state: String? = nil) {
            (self.id, self.name, self.state) = (id, name, state)
        }
    }

    /// The distributed trace of the stalled work, as set by the server.
    public struct Trace: Codable, Hashable, Sendable {
        /// In the tracer's format.
        public var traceID: String
        /// In the tracer's format. Nil if only the trace is known.
        public var spanID: String?

        /// Creates a trace, by default without a span.
        public init(traceID: String, spanID: String? = nil) {
            (self.traceID, self.spanID) = (traceID, spanID)
        }

        private enum CodingKeys: String, CodingKey {
            case traceID = "trace_id"
            case spanID = "span_id"
        }
    }

    /// The cost of this report for the stalled thread and the machine.
    public struct MonitorCost: Codable, Hashable, Sendable {
        /// Nanoseconds for which the stalled thread was held; 0 after a quiet capture.
        public var heldNs: Int64
        /// Nanoseconds spent on unwinding, while the stalled thread ran. The total of all captures of the stall.
        public var unwindNs: Int64
        /// Nanoseconds spent on symbolication, on another thread than the stalled one.
        public var symbolicationNs: Int64
        /// Bytes of stack copied.
        public var copiedBytes: Int64
        /// One line for display: why names or lines are missing because of the symbolication budget. Nil if none are.
        public var symbolicationNote: String?
        /// CPU time of the watchdog's thread from the start of the stall until this was written, including its other work.
        public var watchdogCPUNs: Int64?
        /// CPU time of composing this report, including symbolication.
        public var reporterCPUNs: Int64?
        /// Why there are fewer samples, or no stacks: the state of the monitor's budget, `thinned`, `stopped` or `trial`. Nil
        /// if the budget was kept.
        public var budget: String?

        /// Creates a cost, by default zero.
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

extension StallReport.Thread {
    /// The name for display. libdispatch names its threads after their queue, of which the kernel keeps the last 15 characters:
    /// `oot.default-qos` of `com.apple.root.default-qos`.
    package var plainName: String? {
        guard let name, let queue = name.split(separator: ".").last, name.utf8.count == 15, name.contains("-qos") else {
            return name
        }
        return "libdispatch worker \(queue)"
    }
}
