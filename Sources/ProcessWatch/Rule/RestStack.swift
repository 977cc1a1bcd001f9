import StackCapture

/// The stack of a loop's thread while it rested: what of a later stack is the loop itself, and what it called. Pure.
struct RestStack: Hashable, Sendable {
    /// A place in a function that has been called there: where the call returns to, with which stack pointer.
    struct Place: Hashable, Sendable {
        var address: UInt64
        var stackPointer: UInt64
    }

    /// Innermost first; the first is the wait itself.
    private let places: [Place]
    private let outer: Set<Place>
    /// Whether the frame behind the wait is surely its caller's.
    private let knowsCaller: Bool

    /// Nil for a stack that shows something else than this wait.
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

    /// Without more than where the thread waits.
    init(waitingAt wait: WaitPlace) {
        places = [Place(address: wait.programCounter, stackPointer: wait.stackPointer)]
        (outer, knowsCaller) = ([], false)
    }

    /// Where every turn comes by: the wait's return to the loop. The C library has several ways into the kernel, and one way back.
    var turn: Place { knowsCaller ? places[1] : places[0] }

    /// Where the wait itself returns from the kernel. Other calls of the loop's code come by there, too: one that waits, and one that only looks.
    private var wait: Place { places[0] }

    /// A place that proves a turn once the thread has come by it.
    struct TurnPlace: Hashable, Sendable {
        var place: Place
        /// Not nil: a system call on this descriptor returns there, with any stack pointer.
        var descriptor: Int32?
    }

    /// Where the thread is to be caught; each place takes a debug register.
    ///
    /// - Parameters:
    ///   - descriptor: what the loop waits on. Nil for one that waits for a list, made anew each time.
    ///   - mayWaitElsewhere: the C library may wait by another instruction from now on, which it does once there is a second thread. Then
    ///     only its return to the loop is common to both.
    func turnPlaces(on descriptor: Int32?, mayWaitElsewhere: Bool) -> [TurnPlace] {
        guard let descriptor else { return [TurnPlace(place: turn)] }
        let own = TurnPlace(place: wait, descriptor: descriptor)
        return mayWaitElsewhere && turn != wait ? [own, TurnPlace(place: turn)] : [own]
    }

    /// Where a thread is that does not rest.
    enum Finding: Hashable, Sendable {
        /// In the loop's own wait, on the way in or out: it turns.
        case inWait
        /// The loop called something. Where that will return to, and what it called itself, outermost first; and the loop's own frame.
        case callout(returns: [Place], loopFrame: Int)
        /// The loop computes itself.
        case inLoop
        /// The two stacks have nothing in common.
        case unknown

        /// The loop's own frame, where it called something.
        var loopFrame: Int? { if case .callout(_, let frame) = self { frame } else { nil } }
    }

    /// Most returns that are watched: a thread has four debug registers, and one is the turn's.
    static let returnLimit = 3

    func find(in stack: CapturedStack) -> Finding {
        let now = stack.places
        // A frame whose caller's place has not changed since the rest is the same activation: the innermost such is the loop's.
        guard let caller = now.indices.dropFirst().first(where: { outer.contains(now[$0]) }) else { return .unknown }
        let loop = caller - 1
        if loop == 0 { return now[caller] == places[1] ? .inWait : .inLoop }
        let returns = (1...loop).reversed().prefix(Self.returnLimit).prefix { stack.frames[$0].found != .scan }
        return .callout(returns: returns.map { now[$0] }, loopFrame: loop)
    }
}

extension CapturedStack {
    /// Empty where the stack pointers were not told.
    fileprivate var places: [RestStack.Place] {
        guard stackPointers.count == frames.count else { return [] }
        return zip(frames, stackPointers).map { .init(address: UInt64($0.address), stackPointer: UInt64($1)) }
    }
}
