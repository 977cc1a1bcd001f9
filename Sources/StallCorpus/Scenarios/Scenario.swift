import StallReports

/// One thing that a server does while its loop is watched, and what the monitor must make of it.
package struct Scenario: Sendable {
    typealias Place = Stage.Place

    /// Unique, in lower case with hyphens: what the command line calls it.
    package let name: String
    /// The ability that it tries: figures are also given for each.
    package let part: Part
    let place: Place
    let expectation: Expectation
    /// Something outside that it needs; without it, it is skipped, and said to be.
    var needs = Needs.nothing
    /// Played on a thread of its own that may block. Throws `SkippedScenario` where the machine does not allow it.
    let play: @Sendable (Stage) throws -> Void

    /// What is tried.
    package enum Part: String, CaseIterable, Codable, Sendable {
        case onCPU = "on_cpu"
        case calls, locks, deadlocks, starved, disk, places, lengths, kinds, pauses, traffic

        /// Whether its loops wait for most of the time: several such processes at once do not disturb each other.
        var sleeps: Bool { [.calls, .locks, .deadlocks, .places, .pauses].contains(self) }
    }

    /// What a child process needs around it.
    enum Needs: Sendable {
        case nothing
        /// libfaketime in the child, reading the clock from a file.
        case fakeClock
        /// A monitor that lets the process start in peace for two seconds.
        case startupGrace
    }
}

/// What the monitor must say.
enum Expectation: Sendable {
    case stall(ExpectedStall)
    /// Nothing at all.
    case silence
}

/// What must stand in the report of a stall.
struct ExpectedStall: Sendable {
    /// Any of these: where a rule leaves it open which fires first.
    var kinds: Set<StallKind>
    /// Any of these.
    var verdicts: Set<Verdict>
    /// The function to blame, without its argument labels. Any of these, where a scenario makes several stalls.
    var culprits: [String]
    /// The name of the thread that holds what is waited for. Nil: nobody does, or the kind of lock does not tell.
    var owner: String?
    /// How many stalls the scenario makes.
    var count = 1
    /// Whether start and end can be compared: not where the clock is faked, nor the end of a stall that the process does not survive.
    var bounds = Bounds.both

    enum Bounds: Sendable {
        case both, startOnly, none
    }
}

extension Scenario {
    /// A stall that is made by one piece of work on the scenario's place.
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

    /// Something that looks like a stall to a hasty watcher, and is none.
    static func lookAlike(
        _ name: String,
        _ part: Part,
        on place: Place = .mainLoop,
        needs: Needs = .nothing,
        _ play: @escaping @Sendable (Stage) throws -> Void
    ) -> Scenario {
        Scenario(name: name, part: part, place: place, expectation: .silence, needs: needs, play: play)
    }

    /// All of them, in the order in which they are played.
    package static let all: [Scenario] =
        computing + waiting + locks + deadlocks + starved + disk + places + lengths + kinds
        + idleLookAlikes + trafficLookAlikes + pauseLookAlikes + switchLookAlikes

    /// Whether it is a stall, or looks like one only.
    package var isStall: Bool { if case .stall = expectation { true } else { false } }
}
