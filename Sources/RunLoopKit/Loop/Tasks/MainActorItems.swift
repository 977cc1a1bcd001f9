internal import CRunLoopShims

// Items whose callbacks are isolated to the main actor, for the main loop: they use its state without a hop and without
// assumptions.
//
// On another loop, too, they run only on the main actor's thread: that loop passes each call to the main loop, and continues.

extension EventTimer {
    /// Fires on the main actor, for the first time after one interval (R48):
    ///
    ///     EventRunLoop.main.add(.onMainActor(every: .seconds(1)) { _ in counter += 1 })
    ///
    /// Any thread may create it.
    public static func onMainActor(
        every interval: Duration,
        order: Int = 0,
        _ callback: @escaping @MainActor (EventTimer) -> Void
    ) -> EventTimer {
        EventTimer(every: interval, order: order) { callOnMainActor(callback, $0) }
    }

    /// Fires on the main actor once, after a delay from now. Any thread may create it.
    public static func onMainActor(
        after delay: Duration,
        order: Int = 0,
        _ callback: @escaping @MainActor (EventTimer) -> Void
    ) -> EventTimer {
        EventTimer(after: delay, order: order) { callOnMainActor(callback, $0) }
    }

    /// Fires on the main actor at a date, and then at each interval unless that is zero (R42). Any thread may create it.
    public static func onMainActor(
        at date: MonotonicInstant,
        every interval: Duration = .zero,
        order: Int = 0,
        _ callback: @escaping @MainActor (EventTimer) -> Void
    ) -> EventTimer {
        EventTimer(at: date, every: interval, order: order) { callOnMainActor(callback, $0) }
    }

    /// Fires on the main actor at a date of the wall clock, and then at each interval unless that is zero (R49). Any thread may
    /// create it.
    public static func onMainActor(
        atWallClock date: WallClockInstant,
        every interval: Duration = .zero,
        order: Int = 0,
        _ callback: @escaping @MainActor (EventTimer) -> Void
    ) -> EventTimer {
        EventTimer(atWallClock: date, every: interval, order: order) { callOnMainActor(callback, $0) }
    }
}

extension EventSource {
    /// Performs on the main actor. Any thread may create and signal it.
    public static func onMainActor(
        order: Int = 0,
        perform: @escaping @MainActor (EventSource) -> Void
    ) -> EventSource {
        EventSource(order: order) { callOnMainActor(perform, $0) }
    }
}

extension LoopObserver {
    /// Is called on the main actor. On a loop other than the main loop the activity is over by then. Any thread may create it.
    public static func onMainActor(
        activities: EventRunLoop.Activity = .all,
        order: Int = 0,
        repeats: Bool = true,
        _ callback: @escaping @MainActor (LoopObserver, EventRunLoop.Activity) -> Void
    ) -> LoopObserver {
        let call: @MainActor ((LoopObserver, EventRunLoop.Activity)) -> Void = { callback($0.0, $0.1) }
        return LoopObserver(activities: activities, order: order, repeats: repeats) { callOnMainActor(call, ($0, $1)) }
    }
}

extension DescriptorSource {
    /// Calls its handler on the main actor. Intended for the main loop: on another loop the same readiness is delivered
    /// repeatedly until the main actor has read the descriptor. Any thread may create it.
    public static func onMainActor(
        descriptor: Int32,
        events: Events = .readable,
        edgeTriggered: Bool = false,
        handler: @escaping @MainActor (DescriptorSource, Events) -> Void
    ) -> DescriptorSource {
        let call: @MainActor ((DescriptorSource, Events)) -> Void = { handler($0.0, $0.1) }
        return DescriptorSource(descriptor: descriptor, events: events, edgeTriggered: edgeTriggered) {
            callOnMainActor(call, ($0, $1))
        }
    }
}

/// Calls at once on the main thread, where the loop's callouts have the main actor's isolation (R59); otherwise through the
/// main loop.
private func callOnMainActor<Argument: Sendable>(
    _ callback: @escaping @MainActor (Argument) -> Void,
    _ argument: Argument
) {
    if run_loop_is_main_thread() { return MainActor.assumeIsolated { callback(argument) } }
    EventRunLoop.main.perform(in: .common) { MainActor.assumeIsolated { callback(argument) } }
}
