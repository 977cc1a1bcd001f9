import StallReports

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
