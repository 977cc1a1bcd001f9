internal import Synchronization

/// Calls back at a time, once or again and again on a fixed grid (R41–R50). On one loop, in any number of its modes. Any thread may
/// create, add, move and invalidate it; it is called on the loop's thread. Times are CLOCK_MONOTONIC.
public final class EventTimer: Sendable {
    /// Called on the loop's thread with the timer itself, which it may move or invalidate (R45).
    public typealias Callback = @Sendable (EventTimer) -> Void

    /// Breaks ties between equal fire dates: lower comes first.
    public let order: Int
    /// Time between fires; zero for a one-shot.
    public let interval: Duration
    private let state: Mutex<State>

    private struct State: Sendable {
        var fireDate: MonotonicInstant
        /// The ticket is the heap's.
        var places: [Place<Int>] = []
        var isFiring = false
        /// Where the callout in progress has moved the timer to.
        var movedTo: MonotonicInstant?
        /// Nil once invalid.
        var callback: Boxed?
    }

    /// Not the bare closure: in an Optional that would be called through a thunk, allocated each time.
    struct Boxed: Sendable {
        let call: Callback
    }

    /// - Parameter interval: Zero or less makes a one-shot (R42).
    public init(
        at date: MonotonicInstant,
        every interval: Duration = .zero,
        order: Int = 0,
        _ callback: @escaping Callback
    ) {
        self.order = order
        self.interval = max(interval, .zero)
        state = Mutex(State(fireDate: date, callback: Boxed(call: callback)))
    }

    /// First fires after one interval (R48).
    public convenience init(every interval: Duration, order: Int = 0, _ callback: @escaping Callback) {
        self.init(at: .now.advanced(by: interval), every: interval, order: order, callback)
    }

    /// A one-shot that fires after `delay` from now.
    public convenience init(after delay: Duration, order: Int = 0, _ callback: @escaping Callback) {
        self.init(at: .now.advanced(by: delay), order: order, callback)
    }

    /// First fires after one interval, given in seconds. Throws `invalidInterval` if it is no number or infinite (R42).
    public convenience init(
        everySeconds interval: Double,
        order: Int = 0,
        _ callback: @escaping Callback
    ) throws(RunLoopError) {
        guard interval.isFinite else { throw RunLoopError(.invalidInterval) }
        // Within ±292 years, where a Duration of nanoseconds ends; no Double beyond it can be converted.
        let clamped = min(max(interval, -9e9), 9e9)
        self.init(every: .nanoseconds(Int64(clamped * 1e9)), order: order, callback)
    }

    /// Whether it can still fire. Any thread.
    public var isValid: Bool { state.withLock { $0.callback != nil } }

    /// Whether it fires again and again.
    public var repeats: Bool { interval > .zero }

    /// When it fires next. During its callout: the date being served, or where the callout has moved it.
    ///
    /// Setting it takes effect at once, also on a sleeping loop (R27), and moves the grid. Set inside the callout, it counts if it is
    /// later than the date being served, and not for a one-shot (R45). Any thread.
    public var nextFireDate: MonotonicInstant {
        get { state.withLock { $0.movedTo ?? $0.fireDate } }
        set { move(to: newValue) }
    }

    /// Takes it out of its loop for good, and frees the callback. Any thread; what runs already runs to its end.
    public func invalidate() {
        let (places, callback) = state.withLock { state in (state.places, state.callback.take()) }
        guard callback != nil else { return }
        for place in places { place.loop.detach(self, from: place.mode) }
        places.first?.loop.forgetCommon(self)
    }

    /// Calls back now, due or not. Ends a one-shot; leaves a repeating timer's grid as it is (R47). Call it on the timer's loop.
    public func fire() {
        guard let callback = begin(dueAt: .distantFuture, on: nil) else { return }
        callOut(callback, timer: self)
        end(isScheduled: false)
    }

    private func move(to fireDate: MonotonicInstant) {
        let loop: EventRunLoop? = state.withLock { state in
            guard !state.isFiring else {
                state.movedTo = fireDate
                return nil
            }
            state.fireDate = fireDate
            placeInHeaps(state)
            return state.places.first?.loop
        }
        loop?.wakeUpFromElsewhere()
    }

    private func placeInHeaps(_ state: borrowing State) {
        for place in state.places { place.mode.withTimers { $0.place(place.ticket, at: state.fireDate) } }
    }
}

// MARK: - The loop's side

extension EventTimer {
    /// Fires if the timer is still as the snapshot of due timers found it: valid, due, not in its callout, on the loop (R43).
    func fireIfDue(at now: MonotonicInstant, on loop: EventRunLoop) {
        guard let callback = begin(dueAt: now, on: loop) else { return }
        callOut(callback, timer: self)
        end(isScheduled: true)
    }

    private func begin(dueAt now: MonotonicInstant, on loop: EventRunLoop?) -> Boxed? {
        state.withLock { state in
            // Another timer's callout may have moved it to a date that has come meanwhile.
            guard !state.isFiring, state.fireDate <= now || state.fireDate.hasPassed, let callback = state.callback
            else {
                return nil
            }
            if let loop, !state.places.contains(where: { $0.loop === loop }) { return nil }
            state.isFiring = true
            // Out of the heaps: a nested run neither fires it nor waits for it.
            for place in state.places { place.mode.withTimers { $0.withdraw(place.ticket) } }
            return callback
        }
    }

    /// - Parameter isScheduled: False for a fire by hand, which leaves the grid alone.
    private func end(isScheduled: Bool) {
        let isOver = state.withLock { state in
            state.isFiring = false
            let moved = state.movedTo.take()
            guard repeats, state.callback != nil else { return true }
            if let moved, moved > state.fireDate || !isScheduled {
                state.fireDate = moved
            } else if isScheduled {
                state.fireDate = nextOnGrid(after: state.fireDate, now: .now)
            }
            placeInHeaps(state)
            return false
        }
        if isOver { invalidate() }
    }

    /// The first date of the grid through `served` that is later than it and than now: what was missed is one fire (R44, R50).
    private func nextOnGrid(after served: MonotonicInstant, now: MonotonicInstant) -> MonotonicInstant {
        let interval = UInt64(max(1, self.interval.saturatedNanoseconds))
        let missed = now > served ? (now.nanoseconds - served.nanoseconds) / interval : 0
        let (distance, tooFar) = interval.multipliedReportingOverflow(by: missed + 1)
        let (next, tooLate) = served.nanoseconds.addingReportingOverflow(distance)
        return tooFar || tooLate ? .distantFuture : MonotonicInstant(nanoseconds: next)
    }
}

extension EventTimer: LoopItem {
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool {
        try state.withLock { state throws(RunLoopError) in
            guard state.callback != nil else { throw RunLoopError(.itemInvalid) }
            guard state.places.allSatisfy({ $0.loop === loop }) else { throw RunLoopError(.itemOnOtherLoop) }
            guard !state.places.isIn(mode) else { return false }
            let ticket = mode.withTimers { timers in
                let ticket = timers.insert(self, at: state.fireDate)
                if state.isFiring { timers.withdraw(ticket) }
                return ticket
            }
            state.places.append(Place(loop: loop, mode: mode, ticket: ticket))
            mode.population.add(1, ordering: .releasing)
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        state.withLock { state in
            guard let place = state.places.leave(mode) else { return false }
            _ = mode.withTimers { $0.remove(place.ticket) }
            mode.population.subtract(1, ordering: .releasing)
            return true
        }
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    /// A sleeping loop does not know of the new date yet (R27).
    func didAttach(to mode: LoopMode, of loop: EventRunLoop) { loop.wakeUpFromElsewhere() }
}
