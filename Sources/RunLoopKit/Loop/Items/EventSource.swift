import Locking
internal import Synchronization

/// A source that is signalled by hand: version 0 in CFRunLoop's terms. Any thread may signal it; the loop performs it once for any
/// number of signals before that (R28–R33). Not in a signal handler, in spite of the name: see ``EventRunLoop/wakeUp()``.
public final class EventSource: Sendable {
    /// Called on a loop's thread. A signal made inside it means the next turn (R29).
    public typealias Perform = @Sendable (EventSource) -> Void
    /// Told the loop and the mode that the source came into or left: once for each, outside all locks (R33).
    public typealias Notice = @Sendable (EventRunLoop, EventRunLoop.Mode) -> Void

    /// Lower comes first.
    public let order: Int
    private let onSchedule: Notice?
    private let onCancel: Notice?
    private let state: ForkSafeMutex<State>
    /// When the present signal came, counted over all sources. Written under `state`'s lock; a pass that sorts by it may read one
    /// of two signals, either of which it was.
    private let signalNumber = Atomic<UInt64>(0)
    private static let lastSignalNumber = Atomic<UInt64>(0)
    /// Whether a signal stands in all queues already, so that another one has nothing to do. Written under `state`'s lock.
    private let hasQueuedSignal = Atomic<Bool>(false)

    private struct State: Sendable {
        /// The ticket says whether the source stands in the mode's queue of signalled ones.
        var places: [ItemPlace<Bool>] = []
        var isSignalled = false
        var isPerforming = false
        /// A pass came by while the source was performing, and left the signal to be queued again at the end.
        var wasPassedOver = false
        /// Nil once invalid.
        var perform: Boxed?
    }

    /// Not the bare closure: in an Optional that would be called through a thunk, allocated each time.
    struct Boxed: Sendable {
        let call: Perform
    }

    /// - Parameters:
    ///   - onSchedule: Called on the adding thread after the source came into a mode of a loop.
    ///   - onCancel: Called after it left: by removal, invalidation, or the end of the loop's thread.
    ///   - perform: Called on a loop's thread; never on two at once.
    public init(
        order: Int = 0,
        onSchedule: Notice? = nil,
        onCancel: Notice? = nil,
        perform: @escaping Perform
    ) {
        self.order = order
        self.onSchedule = onSchedule
        self.onCancel = onCancel
        state = ForkSafeMutex(State(perform: Boxed(call: perform)))
    }

    /// Whether it can still be performed. Any thread.
    public var isValid: Bool { state.withLock { $0.perform != nil } }

    /// Whether a signal waits to be performed. Any thread.
    public var isSignalled: Bool { state.withLock { $0.isSignalled } }

    var signalSequence: UInt64 { signalNumber.load(ordering: .relaxed) }

    /// Asks to be performed in the next pass of each loop it is on, by whichever comes first. Does not wake a sleeping loop (R24):
    /// see ``signalAndWake()``. Any thread; not in a signal handler, which has ``EventRunLoop/wakeUp()``.
    public func signal() {
        // Many threads may signal one source at once. A read-modify-write even if it changes nothing: the loop's exchange in `begin` comes
        // after it, and acquires what the caller did before, or came before it, and then this finds false.
        if hasQueuedSignal.compareExchange(expected: true, desired: true, ordering: .acquiringAndReleasing).exchanged {
            return
        }
        state.withLock { state in
            guard !state.isSignalled, state.perform != nil else { return }
            state.isSignalled = true
            signalNumber.store(
                EventSource.lastSignalNumber.add(1, ordering: .relaxed).newValue,
                ordering: .relaxed
            )
            enqueue(&state)
            hasQueuedSignal.store(!state.places.isEmpty, ordering: .releasing)
        }
    }

    /// Signals, and wakes the loops it is on. Any thread; not in a signal handler, which has ``EventRunLoop/wakeUp()``.
    public func signalAndWake() {
        signal()
        for place in state.withLock({ $0.places }) { place.loop.wakeUp() }
    }

    /// Takes it out of all loops and modes for good, calls `onCancel` for each, and frees `perform`. Any thread; what runs already
    /// runs to its end.
    public func invalidate() {
        let (places, perform) = state.withLock { state in
            state.isSignalled = false
            return (state.places, state.perform.take())
        }
        guard perform != nil else { return }
        for place in places { place.loop.detach(self, from: place.mode) }
        for place in places { place.loop.forgetCommon(self) }
    }

    /// Queues the source in every mode where it does not stand in the queue.
    private func enqueue(_ state: inout State) {
        for index in state.places.indices where !state.places[index].ticket {
            state.places[index].ticket = true
            state.places[index].mode.enqueue(self)
        }
    }
}

// MARK: - The loop's side

extension EventSource {
    /// Performs the source if it is valid and signalled; says whether it did. The loop's thread.
    func performIfSignalled(in mode: LoopMode) -> Bool {
        guard let perform = begin(in: mode) else { return false }
        callOut(perform, source: self)
        let loops = end()
        for loop in loops { loop.wakeUp() }
        return true
    }

    /// Whether the source, just taken from the mode's queue, is still signalled; if not, it may be queued again. The loop's thread.
    func staysTaken(from mode: LoopMode) -> Bool {
        state.withLock { state in
            if state.isSignalled { return true }
            EventSource.noteTaken(from: mode, &state)
            return false
        }
    }

    /// The source stands in the mode's queue no longer.
    private static func noteTaken(from mode: LoopMode, _ state: inout State) {
        if let index = state.places.firstIndex(where: { $0.mode === mode }) { state.places[index].ticket = false }
    }

    private func begin(in mode: LoopMode) -> Boxed? {
        state.withLock { state in
            EventSource.noteTaken(from: mode, &state)
            guard state.isSignalled, let perform = state.perform else { return nil }
            guard !state.isPerforming else {
                state.wasPassedOver = true
                return nil
            }
            // Before the callout: a signal made inside it means the next turn (R29).
            state.isSignalled = false
            _ = hasQueuedSignal.exchange(false, ordering: .acquiringAndReleasing)
            state.isPerforming = true
            return perform
        }
    }

    /// Returns the loops that may sleep on a signal that was passed over.
    private func end() -> [EventRunLoop] {
        state.withLock { state in
            state.isPerforming = false
            guard state.wasPassedOver else { return [] }
            state.wasPassedOver = false
            guard state.isSignalled else { return [] }
            enqueue(&state)
            return state.places.map(\.loop)
        }
    }
}

extension EventSource: LoopItem {
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool {
        try state.withLock { state throws(RunLoopError) in
            guard state.perform != nil else { throw RunLoopError(.itemInvalid) }
            guard !state.places.isIn(mode) else { return false }
            state.places.append(ItemPlace(loop: loop, mode: mode, ticket: false))
            mode.contents.withLock { $0.sources[ObjectIdentifier(self)] = self }
            mode.population.add(1, ordering: .releasing)
            if state.isSignalled { enqueue(&state) }
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        state.withLock { state in
            guard state.places.leave(mode) != nil else { return false }
            mode.contents.withLock { $0.remove(self, isValid: state.perform != nil) }
            mode.population.subtract(1, ordering: .releasing)
            return true
        }
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    func didAttach(to mode: LoopMode, of loop: EventRunLoop) {
        onSchedule?(loop, EventRunLoop.Mode(mode.name))
    }

    func didDetach(from mode: LoopMode, of loop: EventRunLoop) {
        onCancel?(loop, EventRunLoop.Mode(mode.name))
    }
}
