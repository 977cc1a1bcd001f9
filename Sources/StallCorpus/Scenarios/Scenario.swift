import StallReports

/// Something that a server does while its loop is watched, and the report that the monitor must make of it.
package struct Scenario: Sendable {
    typealias Place = Stage.Place

    /// Unique, in lower case with hyphens; it is used on the command line.
    package let name: String
    /// The ability that it tests: figures are also computed for each part.
    package let part: Part
    let place: Place
    let expectation: Expectation
    /// An external requirement. Without it the scenario is skipped, and reported as skipped.
    var needs = Needs.nothing
    /// Called on a separate thread that may block. Throws `SkippedScenario` if the machine does not allow it.
    let play: @Sendable (Stage) throws -> Void

    /// The ability that is tested.
    package enum Part: String, CaseIterable, Codable, Sendable {
        case onCPU = "on_cpu"
        case calls, locks, deadlocks, starved, disk, places, lengths, kinds, pauses, traffic

        /// Whether its loops wait most of the time: several such processes at once do not disturb each other.
        var sleeps: Bool { [.calls, .locks, .deadlocks, .places, .pauses].contains(self) }
    }

    /// The environment that a child process needs.
    enum Needs: Sendable {
        case nothing
        /// libfaketime in the child, reading the clock from a file.
        case fakeClock
        /// A monitor that reports nothing in the first two seconds.
        case startupGrace
    }
}

/// What the monitor must report.
enum Expectation: Sendable {
    case stall(ExpectedStall)
    /// No report at all.
    case silence
}

/// The expected content of a stall's report.
struct ExpectedStall: Sendable {
    /// Any of these, if the rules leave open which one is detected first.
    var kinds: Set<StallKind>
    /// Any of these.
    var verdicts: Set<Verdict>
    /// The function to blame, without its argument labels. Any of these, if a scenario makes several stalls.
    var culprits: [String]
    /// The name of the thread that holds what is waited for. Nil if there is none, or the kind of lock does not store it.
    var owner: String?
    /// The number of stalls that the scenario makes.
    var count = 1
    /// Which times can be compared: none if the clock is faked, and not the end of a stall that the process does not survive.
    var bounds = Bounds.both

    enum Bounds: Sendable {
        case both, startOnly, none
    }
}

extension Scenario {
    /// A stall made by one piece of work on the scenario's place.
    static func stall(
        _ name: String,
        _ part: Part,
        on place: Place,
        kinds: Set<StallKind> = [.blocked],
        _ verdicts: Set<Verdict>,
        culprit: String,
        or otherCulprit: String? = nil,
        owner: String? = nil,
        count: Int = 1,
        bounds: ExpectedStall.Bounds = .both,
        needs: Needs = .nothing,
        _ play: @escaping @Sendable (Stage) throws -> Void
    ) -> Scenario {
        let expected = ExpectedStall(
            kinds: kinds,
            verdicts: verdicts,
            culprits: [culprit] + [otherCulprit].compactMap(\.self),
            owner: owner,
            count: count,
            bounds: bounds
        )
        return Scenario(name: name, part: part, place: place, expectation: .stall(expected), needs: needs, play: play)
    }

    /// A situation that could be mistaken for a stall, and is not one.
    static func lookAlike(
        _ name: String,
        _ part: Part,
        on place: Place = .mainLoop,
        needs: Needs = .nothing,
        _ play: @escaping @Sendable (Stage) throws -> Void
    ) -> Scenario {
        Scenario(name: name, part: part, place: place, expectation: .silence, needs: needs, play: play)
    }

    /// All scenarios, in the order in which they are played.
    package static let all: [Scenario] =
        computing + waiting + locks + deadlocks + starved + disk + places + lengths + kinds
        + idleLookAlikes + trafficLookAlikes + pauseLookAlikes + switchLookAlikes

    /// Whether it is a stall and not a look-alike.
    package var isStall: Bool { if case .stall = expectation { true } else { false } }
}
