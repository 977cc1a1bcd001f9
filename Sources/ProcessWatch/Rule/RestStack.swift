import StackCapture

/// The stack of a loop's thread while the loop rested. It shows which frames of a later stack belong to the loop, and what the
/// loop called. Pure.
struct RestStack: Hashable, Sendable {
    /// Where a call returns to, and the stack pointer there.
    struct Place: Hashable, Sendable {
        var address: UInt64
        var stackPointer: UInt64
    }

    /// Innermost first; the first is the wait itself.
    private let places: [Place]
    private let outer: Set<Place>
    /// Whether the frame after the wait's is certainly its caller.
    private let knowsCaller: Bool

    /// Nil if the stack does not show this wait.
    init?(_ stack: CapturedStack, waitingAt wait: WaitPlace) {
        let places = stack.places
        guard let first = places.first, first.address == wait.programCounter, first.stackPointer == wait.stackPointer
        else {
            return nil
        }
        self.places = places
        outer = Set(places.dropFirst())
        knowsCaller = places.count > 1 && stack.frames[1].found == .unwindTable
    }

    /// Creates one from the wait alone, without the rest of the stack.
    init(waitingAt wait: WaitPlace) {
        places = [Place(address: wait.programCounter, stackPointer: wait.stackPointer)]
        (outer, knowsCaller) = ([], false)
    }

    /// Where the wait returns to the loop. Every turn passes here, though the C library may enter the kernel at several places.
    var turn: Place { knowsCaller ? places[1] : places[0] }

    /// Where the wait returns from the kernel. The loop's other calls pass here too, both waiting and polling ones.
    private var wait: Place { places[0] }

    /// A place that proves a turn when the thread passes it.
    struct TurnPlace: Hashable, Sendable {
        var place: Place
        /// If not nil, any stack pointer counts when a system call on this descriptor returns there.
        var descriptor: Int32?
    }

    /// The places where breakpoints must be set to see a turn. Each takes one debug register.
    ///
    /// - Parameters:
    ///   - descriptor: What the loop waits on. Nil for a loop that builds a list of descriptors for each wait.
    ///   - mayWaitElsewhere: Whether the process has only one thread. Once it has a second one, the C library waits at another
    ///     instruction, and both paths share only the return to the loop.
    func turnPlaces(on descriptor: Int32?, mayWaitElsewhere: Bool) -> [TurnPlace] {
        guard let descriptor else { return [TurnPlace(place: turn)] }
        let own = TurnPlace(place: wait, descriptor: descriptor)
        return mayWaitElsewhere && turn != wait ? [own, TurnPlace(place: turn)] : [own]
    }

    /// Where a thread is while its loop does not rest.
    enum Finding: Hashable, Sendable {
        /// In the loop's own wait, about to sleep or to return: the loop turns.
        case inWait
        /// The loop has called a function. `returns` has the return places of that function and of those that it called,
        /// outermost first; `loopFrame` is the index of the loop's own frame.
        case callout(returns: [Place], loopFrame: Int)
        /// In the loop's own function.
        case inLoop
        /// The two stacks share no frame.
        case unknown

        /// The loop's own frame, if it has called a function.
        var loopFrame: Int? { if case .callout(_, let frame) = self { frame } else { nil } }
    }

    /// The largest number of watched returns. A thread has four debug registers, and one is needed to see turns.
    static let returnLimit = 3

    func find(in stack: CapturedStack) -> Finding {
        let now = stack.places
        // If a frame returns to the same place as while the loop rested, it is the same activation. The innermost such frame is
        // the loop's.
        guard let caller = now.indices.dropFirst().first(where: { outer.contains(now[$0]) }) else { return .unknown }
        let loop = caller - 1
        if loop == 0 { return now[caller] == places[1] ? .inWait : .inLoop }
        let returns = (1...loop).reversed().prefix(Self.returnLimit).prefix { stack.frames[$0].found != .scan }
        return .callout(returns: returns.map { now[$0] }, loopFrame: loop)
    }
}

extension CapturedStack {
    /// Empty if the stack pointers are not known.
    fileprivate var places: [RestStack.Place] {
        guard stackPointers.count == frames.count else { return [] }
        return zip(frames, stackPointers).map { .init(address: UInt64($0.address), stackPointer: UInt64($1)) }
    }
}
