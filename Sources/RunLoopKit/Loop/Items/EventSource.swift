import Locking
import Synchronization

/// A source that the program signals; it corresponds to CFRunLoop's version 0 source. Any thread may signal it; the loop
/// performs it once for any number of preceding signals (R28–R33). In spite of the name, not in a signal handler: see
/// ``EventRunLoop/wakeUp()``.
public final class EventSource: Sendable {
    /// Called on the thread of a loop, which is ``EventRunLoop/current``. A signal made inside it is performed in the next turn
    /// (R29).
    public typealias Callback = @Sendable (EventSource) -> Void
    /// Called with the loop and the mode to which the source was added or from which it was removed: once for each, outside all
    /// locks (R33).
    public typealias Notice = @Sendable (EventRunLoop, EventRunLoop.Mode) -> Void

    /// Lower orders come first.
    public let order: Int
    private let onSchedule: Notice?
    private let onCancel: Notice?
    private let onNewCommon: Notice?
    private let state: ForkSafeMutex<State>
    /// The sequence number of the current signal, counted over all sources. Written under `state`'s lock. A pass that sorts by
    /// it may read either of two successive signals; both are valid.
    private let signalNumber = Atomic<UInt64>(0)
    private static let lastSignalNumber = Atomic<UInt64>(0)
    /// Whether a signal is already in all queues, so that another signal has nothing to do. Written under `state`'s lock.
    private let hasQueuedSignal = Atomic<Bool>(false)

    private struct State: Sendable {
        var places: [ItemPlace<Queued>] = []
        /// The loops that record it for all their common modes.
        var commonLoops: [EventRunLoop] = []
        var isSignalled = false
        var isPerforming = false
        /// A pass reached the source while it was performing, and left the signal to be queued again at the end.
        var wasPassedOver = false
        /// Nil once invalid.
        var perform: Boxed?
    }

    /// Whether the source is in the queue of a mode's signalled sources.
    private enum Queued: Sendable {
        case no, yes
    }

    /// A struct instead of the bare closure: a closure in an Optional would be called through a thunk that is allocated each
    /// time.
    struct Boxed: Sendable {
        let call: Callback
    }

    /// - Parameters:
    ///   - onSchedule: Called on the adding thread after the source was added to a mode of a loop.
    ///   - onCancel: Called after it was removed: by removal, invalidation, or the end of the loop's thread.
    ///   - callback: Called on a loop's thread; never on two at once.
    public convenience init(
        order: Int = 0,
        onSchedule: Notice? = nil,
        onCancel: Notice? = nil,
        _ callback: @escaping Callback
    ) {
        self.init(order: order, onSchedule: onSchedule, onCancel: onCancel, onNewCommon: nil, callback)
    }

    /// - Parameter onNewCommon: Called after `onSchedule` if the source was added because the mode became common: nobody waits for an error.
    package init(
        order: Int = 0,
        onSchedule: Notice?,
        onCancel: Notice?,
        onNewCommon: Notice?,
        _ callback: @escaping Callback
    ) {
        self.order = order
        self.onSchedule = onSchedule
        self.onCancel = onCancel
        self.onNewCommon = onNewCommon
        state = ForkSafeMutex(State(perform: Boxed(call: callback)))
    }

    /// Whether it can still be performed. Any thread.
    public var isValid: Bool { state.withLock { $0.perform != nil } }

    /// Whether a signal is waiting to be performed. Any thread.
    public var isSignalled: Bool { state.withLock { $0.isSignalled } }

    var signalSequence: UInt64 { signalNumber.load(ordering: .relaxed) }

    /// Requests that the first loop to reach it, of those it is on, performs it in its next pass. Does not wake a sleeping loop
    /// (R24): see ``signalAndWake()``. Any thread; not in a signal handler, which has ``EventRunLoop/wakeUp()``.
    public func signal() {
        // Many threads may signal one source at once: if its signal is queued already, this takes no lock. Not by a plain load.
        // True for true is a write, so the loop's exchange in `begin` comes either before it, and then this finds false; or after
        // it, and then the loop sees what the caller did before.
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

    /// Signals, and wakes the loops that the source is on. Any thread; not in a signal handler, which has
    /// ``EventRunLoop/wakeUp()``.
    public func signalAndWake() {
        signal()
        for place in state.withLock({ $0.places }) { place.loop.wakeUp() }
    }

    /// Removes it permanently from all loops and modes, calls `onCancel` for each, and frees the callback. Any thread; a running
    /// call completes.
    public func invalidate() {
        let (places, commonLoops, perform) = state.withLock { state in
            state.isSignalled = false
            return (state.places, state.commonLoops.take(), state.perform.take())
        }
        guard perform != nil else { return }
        for place in places { place.loop.detach(self, from: place.mode) }
        for loop in commonLoops { loop.forgetCommon(self) }
    }

    /// Queues the source in every mode in whose queue it is not.
    private func enqueue(_ state: inout State) {
        for index in state.places.indices where state.places[index].ticket == .no {
            state.places[index].ticket = .yes
            state.places[index].mode.enqueue(self)
        }
    }
}

// MARK: - The loop's side

extension EventSource {
    /// Performs the source if it is valid and signalled; returns whether it did. The loop's thread.
    func performIfSignalled(in mode: LoopMode) -> Bool {
        guard let perform = begin(in: mode) else { return false }
        callOut(perform, source: self)
        let loops = end()
        for loop in loops { loop.wakeUp() }
        return true
    }

    /// Whether the source, just taken from the mode's queue, is still signalled; if not, it may be queued again. The loop's
    /// thread.
    func staysTaken(from mode: LoopMode) -> Bool {
        state.withLock { state in
            if state.isSignalled { return true }
            EventSource.noteTaken(from: mode, &state)
            return false
        }
    }

    /// Records that the source is no longer in the mode's queue.
    private static func noteTaken(from mode: LoopMode, _ state: inout State) {
        if let index = state.places.firstIndex(where: { $0.mode === mode }) { state.places[index].ticket = .no }
    }

    private func begin(in mode: LoopMode) -> Boxed? {
        state.withLock { state in
            EventSource.noteTaken(from: mode, &state)
            guard state.isSignalled, let perform = state.perform else { return nil }
            guard !state.isPerforming else {
                state.wasPassedOver = true
                return nil
            }
            // Before the callout: a signal made inside it is performed in the next turn (R29).
            state.isSignalled = false
            _ = hasQueuedSignal.exchange(false, ordering: .acquiringAndReleasing)
            state.isPerforming = true
            return perform
        }
    }

    /// Returns the loops that may be asleep although a signal was skipped.
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
            state.places.append(ItemPlace(loop: loop, mode: mode, ticket: .no))
            mode.contents.withLock { $0.sources[ObjectIdentifier(self)] = self }
            mode.population.add(1, ordering: .releasing)
            if state.isSignalled { enqueue(&state) }
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        // Released at the end, outside the locks.
        let gone: [EventSource]? = state.withLock { state in
            guard state.places.leave(mode) != nil else { return nil }
            let gone = mode.contents.withLock { $0.remove(self, isValid: state.perform != nil) }
            mode.population.subtract(1, ordering: .releasing)
            return gone
        }
        return gone != nil
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop) {
        state.withLock { $0.commonLoops.noteCommon(isRecorded, on: loop) }
    }

    func didAttach(to mode: LoopMode, of loop: EventRunLoop) {
        onSchedule?(loop, EventRunLoop.Mode(mode.name))
    }

    func didDetach(from mode: LoopMode, of loop: EventRunLoop) {
        onCancel?(loop, EventRunLoop.Mode(mode.name))
    }

    func didAttachToNewCommon(_ mode: LoopMode, of loop: EventRunLoop) {
        onNewCommon?(loop, EventRunLoop.Mode(mode.name))
    }
}
