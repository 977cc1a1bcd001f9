/// What a loop is doing and the contents of its modes, for a person who debugs or a program that inspects it (R62); it
/// corresponds to what the platform's debugger prints. Each mode is as it was at one moment.
///
/// Its ``description`` is that of the loop. Its ``json`` has the shape below, with names in snake case. Members may be added;
/// none will be removed or change its meaning. Times are CLOCK_MONOTONIC in nanoseconds.
///
///     {"loop": "main", "thread": 4711, "time_ns": 99, "phase": "waiting", "turn": 42, "current_mode": "default",
///      "common_modes": ["default"], "queued_blocks": 0, "perform_requests": 0, "before_waiting_work": 0,
///      "modes": [{"name": "default", "common": true,
///                 "sources": [{"order": 0, "signalled": false, "valid": true}],
///                 "descriptors": [{"descriptor": 7, "interest": ["readable"], "edge_triggered": false, "valid": true}],
///                 "timers": [{"order": 0, "next_fire_ns": 199, "fires_in_ns": 100, "interval_ns": 0,
///                             "tolerance_ns": 0, "wall_clock": false, "valid": true}],
///                 "observers": [{"order": 0, "activities": ["entry", "exit"], "repeats": true, "valid": true}]}]}
///
/// `thread` and `current_mode` are null if there is none; a timer's dates are null if it never fires.
public struct LoopSnapshot: Sendable, Hashable, Codable {
    /// See ``EventRunLoop/label``.
    public var loop: String
    /// The kernel's id of the loop's thread.
    public var thread: Int32?
    /// When the snapshot was taken.
    public var timeNanoseconds: UInt64
    /// The name of the ``LoopPhase``.
    public var phase: String
    /// As in ``LoopHeartbeat/Pulse``.
    public var turn: UInt64
    /// The running mode of the innermost run; nil if none runs.
    public var currentMode: String?
    /// In the order in which the modes were created.
    public var commonModes: [String]
    /// Blocks of `perform` that have not run, in all modes.
    public var queuedBlocks: Int
    /// Perform requests that have not begun, in all modes.
    public var performRequests: Int
    /// The number of work items to be done before the loop waits.
    public var beforeWaitingWork: Int
    /// In the order in which the modes were created.
    public var modes: [Mode]

    /// One mode and what is in it.
    public struct Mode: Sendable, Hashable, Codable {
        /// See ``EventRunLoop/Mode/name``.
        public var name: String
        /// Whether it is in the loop's common set.
        public var isCommon: Bool
        /// Sources signalled by the program, sorted by order.
        public var sources: [Source]
        /// In no particular order.
        public var descriptors: [Descriptor]
        /// Sorted by fire date.
        public var timers: [Timer]
        /// In the order in which they are called.
        public var observers: [Observer]
    }

    /// An ``EventSource``.
    public struct Source: Sendable, Hashable, Codable {
        /// Lower orders come first.
        public var order: Int
        /// Whether a signal is waiting to be performed.
        public var isSignalled: Bool
        /// Whether it can still be performed.
        public var isValid: Bool
    }

    /// A ``DescriptorSource``.
    public struct Descriptor: Sendable, Hashable, Codable {
        /// The number.
        public var descriptor: Int32
        /// The names of the ``DescriptorSource/Events`` asked for.
        public var interest: [String]
        /// See ``DescriptorSource/isEdgeTriggered``.
        public var isEdgeTriggered: Bool
        /// Whether it can still be delivered.
        public var isValid: Bool
    }

    /// An ``EventTimer``.
    public struct Timer: Sendable, Hashable, Codable {
        /// Among timers with equal dates, lower orders come first.
        public var order: Int
        /// Nil for the distant future: never.
        public var nextFireNanoseconds: UInt64?
        /// From the time of the snapshot; negative if it is late. Nil for never.
        public var firesInNanoseconds: Int64?
        /// Zero for a one-shot.
        public var intervalNanoseconds: Int64
        /// How much later than its date it may fire.
        public var toleranceNanoseconds: Int64
        /// Whether it moves when the wall clock is stepped.
        public var followsWallClock: Bool
        /// Whether it can still fire.
        public var isValid: Bool
    }

    /// A ``LoopObserver``.
    public struct Observer: Sendable, Hashable, Codable {
        /// Lower orders come first.
        public var order: Int
        /// The names of the ``EventRunLoop/Activity`` that it is called for.
        public var activities: [String]
        /// Whether it stays after its first callback.
        public var repeats: Bool
        /// Whether it can still be called.
        public var isValid: Bool
    }
}

// MARK: - Text

extension LoopSnapshot: CustomStringConvertible {
    /// One line for the loop, one for what is queued if there is anything, one per mode, and one per item of a mode.
    public var description: String {
        let head = "EventRunLoop \(loop): \(phase) in \(currentMode ?? "no mode"), "
        let common = "common modes: \(commonModes.joined(separator: ", "))"
        return ([head + common] + queued + modes.map(\.description)).joined(separator: "\n")
    }

    private var queued: [String] {
        let counts = [
            ("blocks", queuedBlocks), ("perform requests", performRequests), ("work before waiting", beforeWaitingWork),
        ]
        let present = counts.filter { $0.1 > 0 }.map { "\($0.0) \($0.1)" }
        return present.isEmpty ? [] : ["  queued: " + present.joined(separator: ", ")]
    }
}

extension LoopSnapshot.Mode: CustomStringConvertible {
    /// One line for the mode, and one for each of its items.
    public var description: String {
        let items: [any CustomStringConvertible] = sources + descriptors + timers + observers
        let title = "  mode \(name)" + (isCommon ? ", common" : "")
        return ([title] + items.map { "    \($0)" }).joined(separator: "\n")
    }
}

extension LoopSnapshot.Source: CustomStringConvertible {
    /// For example `source, order 0, signalled`.
    public var description: String {
        "source, order \(order)" + (isSignalled ? ", signalled" : "") + (isValid ? "" : ", invalid")
    }
}

extension LoopSnapshot.Descriptor: CustomStringConvertible {
    /// For example `descriptor 7, readable hangUp`.
    public var description: String {
        "descriptor \(descriptor), \(interest.joined(separator: " "))" + (isEdgeTriggered ? ", edge-triggered" : "")
            + (isValid ? "" : ", invalid")
    }
}

extension LoopSnapshot.Timer: CustomStringConvertible {
    /// For example `timer, order 0, fires in 0.25 seconds, every 1.0 seconds, tolerance 0.1 seconds, by the wall clock`.
    public var description: String {
        let interval = intervalNanoseconds > 0 ? ", every \(Duration.nanoseconds(intervalNanoseconds))" : ""
        let date = firesInNanoseconds.map { "fires in \(Duration.nanoseconds($0))" } ?? "fires never"
        let tolerance = toleranceNanoseconds > 0 ? ", tolerance \(Duration.nanoseconds(toleranceNanoseconds))" : ""
        return "timer, order \(order), " + date + interval + tolerance + (followsWallClock ? ", by the wall clock" : "")
            + (isValid ? "" : ", invalid")
    }
}

extension LoopSnapshot.Observer: CustomStringConvertible {
    /// For example `observer, order 0, entry exit, once`.
    public var description: String {
        "observer, order \(order), \(activities.joined(separator: " "))" + (repeats ? "" : ", once")
            + (isValid ? "" : ", invalid")
    }
}
