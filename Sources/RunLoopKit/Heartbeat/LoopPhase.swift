/// The point in its turn at which a loop is. Each value except ``idle`` and ``waiting`` has the activity that observers
/// see (R14).
public enum LoopPhase: UInt8, Sendable, Hashable, CaseIterable {
    /// No activation is running.
    case idle
    /// A run has begun, and its first turn has not.
    case entry
    /// A turn has begun. A loop that publishes only its waits, such as one found by its calls of epoll_wait, stays in this phase
    /// until its next wait.
    case beforeTimers
    /// The loop does the turn's work that needs no wait: blocks, requests, signalled sources. In a turn that only polls also
    /// what the poll has found.
    case beforeSources
    /// The observers of `beforeWaiting` run: the loop is still busy.
    case beforeWaiting
    /// Inside the wait itself, and nowhere else.
    case waiting
    /// The wait is over, and the loop handles what ended it, then blocks.
    case afterWaiting
    /// The observers of the run's end run.
    case exit

    /// Whether a loop in this phase is at rest: it sleeps, or it is not running at all.
    @inlinable public var isAtRest: Bool { self == .idle || self == .waiting }
}

extension LoopHeartbeat {
    /// One transition, in one word: phase (bits 0–7), index of the mode (8–23), number of the turn (24–63).
    ///
    /// Two equal pulses read at different times mean that the loop has made no transition in between (otherwise the turn would
    /// have to wrap: 2^40 turns are 12 days of turns of one microsecond).
    public struct Pulse: RawRepresentable, Hashable, Sendable {
        /// The word as it is published, with the layout described above.
        public let rawValue: UInt64

        /// Takes any word; a phase that does not exist reads as `idle`.
        @inlinable
        public init(rawValue: UInt64) { self.rawValue = rawValue }

        /// - Parameters:
        ///   - modeIndex: Taken modulo 2^16.
        ///   - turn: Taken modulo 2^40.
        @inlinable
        public init(phase: LoopPhase, modeIndex: Int, turn: UInt64) {
            rawValue = UInt64(phase.rawValue) | UInt64(UInt16(truncatingIfNeeded: modeIndex)) << 8 | turn << 24
        }

        /// The phase; `idle` for a value that no loop published.
        @inlinable
        public var phase: LoopPhase { LoopPhase(rawValue: UInt8(truncatingIfNeeded: rawValue)) ?? .idle }

        /// Index of the running mode: see ``EventRunLoop/modeName(at:)``.
        @inlinable
        public var modeIndex: Int { Int(UInt16(truncatingIfNeeded: rawValue >> 8)) }

        /// Number of the turn, modulo 2^40.
        @inlinable
        public var turn: UInt64 { rawValue >> 24 }

        /// Whether the loop sleeps or is not running: the opposite of busy.
        ///
        /// Tests the bits directly: loops call this at each transition, and no phase value has to be constructed.
        @inlinable
        public var isAtRest: Bool {
            switch UInt8(truncatingIfNeeded: rawValue) {
            case 1, 2, 3, 4, 6, 7: false
            default: true
            }
        }
    }
}

extension LoopHeartbeat.Pulse: CustomStringConvertible {
    /// For example `beforeSources, mode 0, turn 42`.
    public var description: String { "\(phase), mode \(modeIndex), turn \(turn)" }
}

/// One turn of a loop, from its departure from rest to its next rest; a turn that no rest precedes begins with its own
/// beginning.
public struct BusyTurn: Hashable, Sendable {
    /// The time that the loop's own thread recorded.
    public var start: MonotonicInstant
    /// Likewise. Not before `start`.
    public var end: MonotonicInstant

    /// Creates one from these values, which are not checked.
    public init(start: MonotonicInstant, end: MonotonicInstant) { (self.start, self.end) = (start, end) }
}
