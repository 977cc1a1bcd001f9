import RunLoopKit

/// A loop's life on a simulated clock: its transitions in order, as a loop would publish them.
struct Trace {
    struct Transition: Hashable {
        var time: MonotonicInstant
        var pulse: LoopHeartbeat.Pulse
        /// Whether a loop reads the clock here: at the beginning of a turn and when it leaves its rest.
        var isStamped: Bool
    }

    private(set) var transitions: [Transition] = []
    private(set) var end = Trace.start
    private var turn: UInt64 = 0

    static let start = MonotonicInstant(nanoseconds: 1_000_000_000_000)

    /// Enters a phase now and stays in it for the duration.
    mutating func stay(_ phase: LoopPhase, _ duration: Duration) {
        let wasAtRest = transitions.last?.pulse.isAtRest ?? true
        let departs = wasAtRest && !phase.isAtRest
        if departs || phase == .beforeTimers { turn += 1 }
        transitions.append(
            Transition(
                time: end,
                pulse: .init(phase: phase, modeIndex: 0, turn: turn),
                isStamped: departs || phase == .beforeTimers
            )
        )
        end = end + duration
    }

    /// The stretches between two transitions.
    var segments: [(phase: LoopPhase, start: MonotonicInstant, end: MonotonicInstant)] {
        let ends = transitions.dropFirst().map(\.time) + [end]
        return zip(transitions, ends).map { ($0.pulse.phase, $0.time, $1) }
    }

    /// A server's loop: mostly turns of microseconds, sometimes work of up to 700 ms in any phase.
    static func random(turns: Int, using random: inout some RandomNumberGenerator) -> Trace {
        var trace = Trace()
        trace.stay(.entry, .microseconds(1))
        for _ in 0..<turns {
            trace.stay(.beforeTimers, work(&random))
            trace.stay(.beforeSources, work(&random))
            guard Int.random(in: 0..<4, using: &random) > 0 else { continue }
            trace.stay(.beforeWaiting, work(&random))
            trace.stay(.waiting, rest(&random))
            trace.stay(.afterWaiting, work(&random))
        }
        trace.stay(.exit, .microseconds(1))
        trace.stay(.idle, .seconds(1))
        return trace
    }

    private static func work(_ random: inout some RandomNumberGenerator) -> Duration {
        switch Int.random(in: 0..<100, using: &random) {
        case ..<80: .microseconds(Int.random(in: 1...900, using: &random))
        case ..<92: .microseconds(Int.random(in: 1_000...120_000, using: &random))
        default: .microseconds(Int.random(in: 150_000...700_000, using: &random))
        }
    }

    private static func rest(_ random: inout some RandomNumberGenerator) -> Duration {
        Bool.random(using: &random)
            ? .microseconds(Int.random(in: 10...3_000, using: &random))
            : .microseconds(Int.random(in: 10_000...900_000, using: &random))
    }
}
