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
    let intervalNanoseconds: UInt64
    let state: ForkSafeMutex<State>

    struct State: Sendable {
        var date: TimerDate
        var places = TimerPlaces()
        var isFiring = false
        /// The loop that records it for all its common modes.
        var commonLoop: EventRunLoop?
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
        let nanoseconds = Int64(clamped * 1e9)
        // A fraction of a nanosecond counts as one, as in a Duration.
        self.init(every: .nanoseconds(interval > 0 ? max(1, nanoseconds) : nanoseconds), order: order, callback)
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

    func schedule(_ state: borrowing State) {
        let date = state.date
        state.places.forEach { mode, ticket in
            mode.withTimers { $0.place(ticket, at: date, order: Int32(clamping: order), isDue: date.hasPassed) }
        }
    }
}

/// Where a timer is: the modes of one loop, with its ticket in the queue of each. The first needs no array, because most timers
/// are in one mode.
struct TimerPlaces: Sendable {
    private(set) var loop: EventRunLoop?
    private var mode: LoopMode?
    private var ticket: UInt32 = 0
    private var others: [(mode: LoopMode, ticket: UInt32)] = []

    func isIn(_ mode: LoopMode) -> Bool { self.mode === mode || others.contains { $0.mode === mode } }

    /// The mode must belong to the loop of the other modes.
    mutating func append(_ mode: LoopMode, of loop: EventRunLoop, ticket: UInt32) {
        guard self.mode != nil else {
            (self.loop, self.mode, self.ticket) = (loop, mode, ticket)
            return
        }
        others.append((mode, ticket))
    }

    /// Removes the place in a mode, and returns its ticket.
    mutating func leave(_ mode: LoopMode) -> UInt32? {
        guard self.mode === mode else {
            return others.firstIndex { $0.mode === mode }.map { others.remove(at: $0).ticket }
        }
        let left = ticket
        if let next = others.popLast() {
            (self.mode, ticket) = next
        } else {
            (loop, self.mode) = (nil, nil)
        }
        return left
    }

    /// Removes the timer from the queues of all its modes.
    func leaveQueues() {
        forEach { mode, ticket in
            mode.withTimers { $0.remove(ticket) }
            mode.population.subtract(1, ordering: .releasing)
        }
    }

    /// - Parameter body: Called with each mode and the ticket there.
    @inline(__always)
    func forEach(_ body: (LoopMode, UInt32) -> Void) {
        if let mode { body(mode, ticket) }
        for place in others { body(place.mode, place.ticket) }
    }

    mutating func take() -> TimerPlaces {
        var taken = TimerPlaces()
        swap(&taken, &self)
        return taken
    }
}
