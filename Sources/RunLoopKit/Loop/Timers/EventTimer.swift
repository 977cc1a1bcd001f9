import Glibc
import Locking
import Synchronization

/// Calls back at a date, once or repeatedly on a fixed grid (R41–R50). It is on one loop, in any number of its modes. Any
/// thread may create, add, move and invalidate it, not in a signal handler; it is called on the loop's thread.
///
/// Time is CLOCK_MONOTONIC, which cannot be set. A timer created for a ``WallClockInstant`` uses the wall clock instead, for
/// its whole lifetime: it fires when that clock reaches its date, or later, even if the clock is set in the meantime. If the
/// clock is set forward over the date, the timer fires at once; over several dates of its grid, once for all of them. If the
/// clock is set back, the timer waits for its next date, and dates that were served are not served again.
public final class EventTimer: Sendable {
    /// Called on the loop's thread with the timer itself, which it may move or invalidate (R45). The loop is
    /// ``EventRunLoop/current``.
    public typealias Callback = @Sendable (EventTimer) -> Void

    /// Breaks ties between equal fire dates: lower orders come first. Values beyond ±2³¹ are equal.
    public let order: Int
    /// Zero for a one-shot timer.
    private let intervalNanoseconds: UInt64
    private let state: ForkSafeMutex<State>

    private struct State: Sendable {
        var date: TimerDate
        var places = TimerPlaces()
        var isFiring = false
        /// Whether the loop may have recorded it for all common modes.
        var isCommon = false
        /// The date to which the callout in progress has moved the timer.
        var movedTo: UInt64?
        /// Nil once invalid.
        var callback: Boxed?
    }

    /// A struct instead of the bare closure: a closure in an Optional would be called through a thunk that is allocated each
    /// time.
    struct Boxed: Sendable {
        let call: Callback
    }

    private init(_ date: TimerDate, every interval: Duration, order: Int, _ callback: @escaping Callback) {
        self.order = order
        // A fraction of a nanosecond counts as one.
        intervalNanoseconds = interval > .zero ? UInt64(max(1, interval.nanoseconds)) : 0
        state = ForkSafeMutex(State(date: date, callback: Boxed(call: callback)))
    }

    /// - Parameter interval: Zero or less makes a one-shot timer (R42).
    public convenience init(
        at date: MonotonicInstant,
        every interval: Duration = .zero,
        order: Int = 0,
        _ callback: @escaping Callback
    ) {
        self.init(TimerDate(clock: .monotonic, nanoseconds: date.nanoseconds), every: interval, order: order, callback)
    }

    /// Uses the wall clock (R49).
    ///
    /// The kernel wakes a sleeping loop when the clock is set. If the process has no descriptor left for that, the loop checks
    /// the clock once a second.
    /// - Parameter interval: Between fires, on the wall clock. Zero or less makes a one-shot timer (R42).
    public convenience init(
        atWallClock date: WallClockInstant,
        every interval: Duration = .zero,
        order: Int = 0,
        _ callback: @escaping Callback
    ) {
        self.init(TimerDate(clock: .wall, nanoseconds: date.nanoseconds), every: interval, order: order, callback)
    }

    /// Fires for the first time after one interval (R48).
    public convenience init(every interval: Duration, order: Int = 0, _ callback: @escaping Callback) {
        self.init(at: .now.advanced(by: interval), every: interval, order: order, callback)
    }

    /// A one-shot timer that fires after `delay` from now.
    public convenience init(after delay: Duration, order: Int = 0, _ callback: @escaping Callback) {
        self.init(at: .now.advanced(by: delay), order: order, callback)
    }

    /// Fires for the first time after one interval, given in seconds. Throws `invalidInterval` if it is NaN or infinite (R42).
    public convenience init(
        everySeconds interval: Double,
        order: Int = 0,
        _ callback: @escaping Callback
    ) throws(RunLoopError) {
        guard interval.isFinite else { throw RunLoopError(.invalidInterval) }
        // Within ±292 years, the range of a Duration in nanoseconds; a Double beyond it cannot be converted.
        let clamped = min(max(interval, -9e9), 9e9)
        self.init(every: .nanoseconds(Int64(clamped * 1e9)), order: order, callback)
    }
}

// MARK: - What it is

extension EventTimer {
    /// Whether it can still fire. Any thread.
    public var isValid: Bool { state.withLock { $0.callback != nil } }

    /// Whether it fires repeatedly.
    public var repeats: Bool { intervalNanoseconds > 0 }

    /// The time between fires, in whole nanoseconds; zero for a one-shot timer.
    public var interval: Duration { .nanoseconds(Int64(clamping: intervalNanoseconds)) }

    /// Whether it uses the wall clock.
    public var followsWallClock: Bool { state.withLock { $0.date.clock == .wall } }

    /// When it fires next. During its callout: the date being served, or the date to which the callout has moved it. For a
    /// timer on the wall clock: when that clock will reach its date, according to the current difference between the clocks.
    ///
    /// Setting it takes effect at once, even on a sleeping loop (R27), and moves the grid. Set inside the callout, it is used
    /// if it is later than the date being served, and ignored for a one-shot timer (R45). Any thread.
    public var nextFireDate: MonotonicInstant {
        get { MonotonicInstant(nanoseconds: date(on: .monotonic)) }
        set { move(to: newValue.nanoseconds, on: .monotonic) }
    }

    /// The same on the wall clock, according to the current difference between the clocks. Setting it does not change the
    /// timer's clock. Any thread.
    public var nextWallClockFireDate: WallClockInstant {
        get { WallClockInstant(nanoseconds: date(on: .wall)) }
        set { move(to: newValue.nanoseconds, on: .wall) }
    }

    /// How much later than its date it may fire, so that the loop can serve several timers with one wake-up: it wakes when the
    /// first of them can wait no longer, and then fires all timers that are due. A loop that is awake fires it at its date
    /// (R46).
    ///
    /// Initially zero. Less than zero becomes zero, and a repeating timer has at most half its interval. Setting it takes
    /// effect at once, even on a sleeping loop. The grid does not change. Any thread.
    public var tolerance: Duration {
        get { .nanoseconds(Int64(clamping: state.withLock { $0.date.tolerance })) }
        set {
            let wanted = UInt64(max(0, newValue.nanoseconds))
            change { $0.date.tolerance = repeats ? min(wanted, intervalNanoseconds / 2) : wanted }
        }
    }

    private func date(on clock: TimerDate.Clock) -> UInt64 {
        let (date, own) = state.withLock { ($0.movedTo ?? $0.date.nanoseconds, $0.date.clock) }
        return EventTimer.convert(date, from: own, to: clock)
    }

    private func move(to date: UInt64, on clock: TimerDate.Clock) {
        change { state in
            let date = EventTimer.convert(date, from: clock, to: state.date.clock)
            if state.isFiring { state.movedTo = date } else { state.date.nanoseconds = date }
        }
    }

    private static func convert(_ date: UInt64, from clock: TimerDate.Clock, to other: TimerDate.Clock) -> UInt64 {
        if clock == other { return date }
        let now = ClockReading.now(withWall: true)
        return other == .wall ? now.wall(ofMonotonic: date) : now.monotonic(ofWall: date)
    }

    /// Changes the date and makes the loop use it at once (R27).
    private func change(_ change: (inout State) -> Void) {
        let loop: EventRunLoop? = state.withLock { state in
            change(&state)
            guard !state.isFiring else { return nil }
            schedule(state)
            return state.places.loop
        }
        loop?.wakeUpFromElsewhere()
    }

    private func schedule(_ state: borrowing State) {
        let date = state.date
        state.places.forEach { mode, ticket in
            mode.withTimers { $0.place(ticket, at: date, order: Int32(clamping: order), isDue: date.hasPassed) }
        }
    }
}

// MARK: - Firing and ending

extension EventTimer {
    /// Removes it permanently from its loop, and frees the callback. Any thread; a running callback completes.
    public func invalidate() { release(state.withLock { Remains(taking: &$0) }) }

    /// Calls back now, due or not. Ends a one-shot timer; leaves a repeating timer's grid unchanged (R47). Call it on the
    /// timer's loop.
    public func fire() {
        guard let callback = begin(dueAt: nil, in: nil, of: nil) else { return }
        callOut(callback, timer: self)
        end(in: nil)
    }

    /// Fires if the timer is still in the state in which the snapshot of due timers found it: valid, due, not in its callout,
    /// on the loop (R43). The loop's thread.
    func fireIfDue(at now: ClockReading, in mode: LoopMode, of loop: EventRunLoop) {
        guard let callback = begin(dueAt: now, in: mode, of: loop) else { return }
        callOut(callback, timer: self)
        end(in: mode)
    }

    /// - Parameters:
    ///   - now: Nil for a call of `fire()`.
    ///   - mode: The mode whose queue has just returned the timer.
    private func begin(dueAt now: ClockReading?, in mode: LoopMode?, of loop: EventRunLoop?) -> Boxed? {
        state.withLock { state in
            guard !state.isFiring, let callback = state.callback else { return nil }
            if let loop, state.places.loop !== loop { return nil }
            // Another timer's callout may have moved it to a date that has been reached since then.
            if let now, state.date.nanoseconds > now.time(on: state.date.clock), !state.date.hasPassed { return nil }
            state.isFiring = true
            // Removed from the other queues too, so that a nested run neither fires it nor waits for it.
            state.places.forEach { other, ticket in
                if other !== mode { other.withTimers { $0.withdraw(ticket) } }
            }
            return callback
        }
    }

    /// - Parameter mode: Nil for a call of `fire()`, which leaves the grid unchanged.
    private func end(in mode: LoopMode?) {
        var elsewhere: EventRunLoop?
        let remains: Remains? = state.withLock { state in
            state.isFiring = false
            let moved = state.movedTo.take()
            guard repeats, state.callback != nil else { return Remains(taking: &state) }
            if let moved, moved > state.date.nanoseconds || mode == nil {
                state.date.nanoseconds = moved
            } else if mode != nil {
                state.date.nanoseconds = nextOnGrid(after: state.date.nanoseconds, now: state.date.clock.now)
            }
            schedule(state)
            // The callout may have moved it to another loop, and `fire()` may be on another thread.
            if let mode, state.places.isIn(mode) { return nil }
            elsewhere = state.places.loop
            return nil
        }
        if let remains { release(remains) }
        elsewhere?.wakeUpFromElsewhere()
    }

    /// The first date of the grid through `served` that is later than it and than now: missed fires collapse into one (R44,
    /// R50).
    private func nextOnGrid(after served: UInt64, now: UInt64) -> UInt64 {
        let missed = now.subtractingSaturated(served) / intervalNanoseconds
        let (distance, overflows) = intervalNanoseconds.multipliedReportingOverflow(by: missed + 1)
        return overflows ? .max : served.addingSaturated(distance)
    }

    /// What an ended timer leaves to be freed outside the locks.
    private struct Remains {
        let callback: Boxed?
        let places: TimerPlaces
        let isCommon: Bool

        /// Ends the timer: from here on it is in no mode and has no callback.
        init(taking state: inout State) {
            callback = state.callback.take()
            places = state.places.take()
            isCommon = state.isCommon
            places.leaveQueues()
        }
    }

    private func release(_ remains: consuming Remains) {
        if remains.isCommon { remains.places.loop?.forgetCommon(self) }
    }
}

extension EventTimer: LoopItem {
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool {
        try state.withLock { state throws(RunLoopError) in
            guard state.callback != nil else { throw RunLoopError(.itemInvalid) }
            guard state.places.loop == nil || state.places.loop === loop else {
                throw RunLoopError(.itemOnOtherLoop)
            }
            guard !state.places.isIn(mode) else { return false }
            let (date, isFiring) = (state.date, state.isFiring)
            let ticket = mode.withTimers { timers in
                let ticket = timers.insert(self)
                if !isFiring { timers.place(ticket, at: date, order: Int32(clamping: order)) }
                return ticket
            }
            state.places.append(mode, of: loop, ticket: ticket)
            mode.population.add(1, ordering: .releasing)
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        state.withLock { state in
            guard let ticket = state.places.leave(mode) else { return false }
            let staysOnLoop = state.places.loop != nil
            mode.withTimers { if staysOnLoop { $0.leave(ticket) } else { $0.remove(ticket) } }
            mode.population.subtract(1, ordering: .releasing)
            return true
        }
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    /// Before the first `attach` for all common modes: a caller that ends the timer after that knows that it is recorded.
    func willRecordAsCommon() { state.withLock { $0.isCommon = true } }

    /// A sleeping loop does not know the new date yet (R27).
    func didAttach(to mode: LoopMode, of loop: EventRunLoop) { loop.wakeUpFromElsewhere() }
}
