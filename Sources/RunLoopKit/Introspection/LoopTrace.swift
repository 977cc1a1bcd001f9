import Glibc
import Locking

/// Records every transition of a loop that an observer can see, in all modes including those created later, in a memory ring
/// and optionally to a sink (R63). Records until ``stop()``, or until the last reference is released. Any thread.
///
/// Its observer has order `Int.min` and is called first among observers of that order added after it. The time between
/// `beforeWaiting` and `afterWaiting` is the sleep, together with the work of the other observers of `beforeWaiting`.
public final class LoopTrace: Sendable {
    /// One step of the loop, from one activity to the next.
    public struct Transition: Sendable, Hashable {
        /// When `to` began.
        public let time: MonotonicInstant
        /// The running mode.
        public let mode: String
        /// For an entry: the phase of the outer run, or `idle` if there is none. After a nested run's exit: the phase
        /// of the outer run.
        public let from: LoopPhase
        /// The loop's phase from `time` on.
        public let to: LoopPhase
        /// As in ``LoopHeartbeat/Pulse``.
        public let turn: UInt64
        /// 1 for a run that is not nested in another, as far as the trace has seen runs begin.
        public let depth: Int
    }

    /// Called on the loop's thread with each transition; the loop waits for it.
    public typealias Sink = @Sendable (Transition) -> Void

    private let loop: EventRunLoop
    private let observer: LoopObserver
    private let ring: TransitionRing

    /// - Parameters:
    ///   - capacity: The number of transitions kept, the latest ones. A number below 1 traps.
    ///   - sink: See ``textLines(to:)`` and ``jsonLines(to:)``.
    public init(
        of loop: EventRunLoop,
        capacity: Int = 4096,
        file: StaticString = #fileID,
        line: UInt = #line,
        sink: Sink? = nil
    ) {
        require(capacity > 0, "A trace keeps at least one transition.", file: file, line: line)
        let ring = TransitionRing(capacity: capacity)
        self.loop = loop
        self.ring = ring
        observer = LoopObserver(order: .min) { [unowned loop] _, activity in
            let (pulse, mode) = (loop.heartbeat.pulse, loop.currentMode?.name ?? "")
            let transition = ring.record(activity, mode: mode, turn: pulse.turn)
            sink?(transition)
        }
        loop.addEverywhere(observer)
    }

    deinit { stop() }

    /// Stops recording. What was recorded is kept.
    public func stop() {
        loop.forgetEverywhere(observer)
        observer.invalidate()
    }

    /// The latest transitions, oldest first.
    public var transitions: [Transition] { ring.all }

    /// The number of transitions that later ones have overwritten in the ring.
    public var lostCount: Int { ring.lostCount }

    /// Returns a sink that writes each transition's text as a line. If the descriptor is a pipe whose reader has ended, the process gets SIGPIPE
    /// as by any write(2); it should ignore that signal.
    public static func textLines(to descriptor: Int32) -> Sink { { writeLine($0.description, to: descriptor) } }

    /// Returns a sink that writes each transition's ``Transition/json`` as a line. SIGPIPE: as for ``textLines(to:)``.
    public static func jsonLines(to descriptor: Int32) -> Sink { { writeLine($0.json, to: descriptor) } }
}

extension LoopTrace.Transition: CustomStringConvertible {
    /// For example `81.000250417 default: beforeTimers → beforeSources, turn 42`; time in seconds.
    public var description: String {
        let fraction = String(time.nanoseconds % 1_000_000_000)
        let padding = String(repeating: "0", count: 9 - fraction.count)
        let seconds = "\(time.nanoseconds / 1_000_000_000).\(padding)\(fraction)"
        return seconds + String(repeating: "  ", count: depth - 1) + " \(mode): \(from) → \(to), turn \(turn)"
    }

    /// One line, for example
    /// `{"time_ns":81000250417,"mode":"default","from":"beforeTimers","to":"beforeSources","turn":42,"depth":1}`.
    public var json: String {
        let value: JSONValue = [
            "time_ns": .number(time.nanoseconds), "mode": .string(mode), "from": .string("\(from)"),
            "to": .string("\(to)"), "turn": .number(turn), "depth": .number(depth),
        ]
        return value.text
    }
}

/// The latest transitions, and the loop's current phases.
private final class TransitionRing: Sendable {
    private struct State: Sendable {
        var transitions: [LoopTrace.Transition] = []
        /// The index of the next entry, once the ring is full.
        var next = 0
        var count = 0
        /// The phases of the runs that have begun, innermost last.
        var phases: [LoopPhase] = []
    }

    private let capacity: Int
    private let state = ForkSafeMutex(State())

    init(capacity: Int) { self.capacity = capacity }

    var all: [LoopTrace.Transition] {
        state.withLock { Array($0.transitions[$0.next...] + $0.transitions[..<$0.next]) }
    }

    var lostCount: Int { state.withLock { $0.count - $0.transitions.count } }

    func record(_ activity: EventRunLoop.Activity, mode: String, turn: UInt64) -> LoopTrace.Transition {
        let phase = LoopPhase.allCases.first { $0.activity == activity } ?? .idle
        return state.withLock { state in
            let from = state.phases.last ?? .idle
            if phase == .entry || state.phases.isEmpty { state.phases.append(phase) }
            let transition = LoopTrace.Transition(
                time: .now,
                mode: mode,
                from: from,
                to: phase,
                turn: turn,
                depth: state.phases.count
            )
            state.phases[state.phases.count - 1] = phase
            if phase == .exit { state.phases.removeLast() }
            keep(transition, &state)
            return transition
        }
    }

    private func keep(_ transition: LoopTrace.Transition, _ state: inout State) {
        state.count += 1
        if state.transitions.count < capacity { return state.transitions.append(transition) }
        state.transitions[state.next] = transition
        state.next = (state.next + 1) % capacity
    }
}

/// Writes the line in one write, so that lines of several threads do not mix, and the rest in further writes if it was cut
/// short. An error other than EINTR ends the writing.
private func writeLine(_ text: String, to descriptor: Int32) {
    var line = Array((text + "\n").utf8)[...]
    while !line.isEmpty {
        let written = unsafe line.withUnsafeBytes { unsafe write(descriptor, $0.baseAddress, $0.count) }
        if written < 0 && errno == EINTR { continue }
        guard written > 0 else { return }
        line = line.dropFirst(written)
    }
}

extension EventRunLoop {
    /// Adds an observer to every mode, present and future.
    func addEverywhere(_ observer: LoopObserver) {
        table.withLock { table in
            guard !table.hasEnded else { return }
            // The loop owns the table, so the loop exists when this is called.
            let put: @Sendable (LoopMode) -> Void = { [unowned self] mode in
                _ = try? observer.attach(to: mode, of: self)
            }
            for mode in table.modes { put(mode) }
            table.everywhere[ObjectIdentifier(observer)] = put
        }
    }

    func forgetEverywhere(_ observer: LoopObserver) {
        let put = table.withLock { $0.everywhere.removeValue(forKey: ObjectIdentifier(observer)) }
        _ = consume put
    }
}
