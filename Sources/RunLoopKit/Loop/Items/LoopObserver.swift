import Locking

/// Observes the activities of one loop (R38). Any thread may create, add and invalidate it; it is called on the loop's thread.
public final class LoopObserver: Sendable {
    /// Called on the loop's thread with one activity at a time; the loop, which is ``EventRunLoop/current``, continues when it
    /// returns.
    public typealias Callback = @Sendable (LoopObserver, EventRunLoop.Activity) -> Void

    /// The activities for which it is called; constant for its lifetime.
    public let activities: EventRunLoop.Activity
    /// Lower orders come first.
    public let order: Int
    /// Whether it stays after its first callback (R40).
    public let repeats: Bool
    private let state: ForkSafeMutex<State>

    private struct State: Sendable {
        var places: [ItemPlace<Void>] = []
        /// The loop that records it for all its common modes.
        var commonLoop: EventRunLoop?
        var isCalled = false
        /// Nil once invalid.
        var callback: Boxed?
    }

    /// A struct instead of the bare closure: a closure in an Optional would be called through a thunk that is allocated each
    /// time.
    struct Boxed: Sendable {
        let call: Callback
    }

    /// By default repeating, of order 0 and for all activities. It is not called before it is added to a loop.
    public init(
        activities: EventRunLoop.Activity = .all,
        order: Int = 0,
        repeats: Bool = true,
        _ callback: @escaping Callback
    ) {
        self.activities = activities
        self.order = order
        self.repeats = repeats
        state = ForkSafeMutex(State(callback: Boxed(call: callback)))
    }

    /// Whether it can still be called. Any thread.
    public var isValid: Bool { state.withLock { $0.callback != nil } }

    /// Removes it permanently from all modes, and frees the callback. Any thread; a running callback completes.
    public func invalidate() {
        let (places, commonLoop, callback) = state.withLock { state in
            (state.places, state.commonLoop.take(), state.callback.take())
        }
        guard callback != nil else { return }
        for place in places { place.loop.detach(self, from: place.mode) }
        commonLoop?.forgetCommon(self)
    }

    /// Calls it, unless it is invalid or in its own callout further up the stack (R23, R39). The loop's thread.
    func observe(_ activity: EventRunLoop.Activity) {
        let callback: Boxed? = state.withLock { state in
            guard !state.isCalled, let callback = state.callback else { return nil }
            state.isCalled = true
            return callback
        }
        guard let callback else { return }
        callOut(callback, observer: self, activity: activity)
        state.withLock { $0.isCalled = false }
        if !repeats { invalidate() }
    }
}

extension LoopObserver: LoopItem {
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool {
        try state.withLock { state throws(RunLoopError) in
            guard state.callback != nil else { throw RunLoopError(.itemInvalid) }
            let present = state.places.first?.loop ?? state.commonLoop
            guard present == nil || present === loop else { throw RunLoopError(.itemOnOtherLoop) }
            guard !state.places.isIn(mode) else { return false }
            state.places.append(ItemPlace(loop: loop, mode: mode, ticket: ()))
            mode.withObservers { observers in
                let position = observers.firstIndex { $0.order > order } ?? observers.endIndex
                observers.insert(self, at: position)
            }
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        state.withLock { state in
            guard state.places.leave(mode) != nil else { return false }
            mode.withObservers { $0.removeAll { $0 === self } }
            return true
        }
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop) {
        state.withLock { $0.commonLoop.noteCommon(isRecorded, on: loop) }
    }
}

extension EventRunLoop {
    /// The loop's activities in a mode from now on, as an asynchronous sequence for one consumer (R38).
    ///
    /// It never delays the loop: a consumer that falls behind by more than `limit` misses the oldest activities. The observer
    /// is removed from the loop when the consumer is cancelled or releases the sequence; the sequence ends when the loop's
    /// thread does. Any thread.
    ///
    /// Consume it on another thread: on the loop itself, each element would be work that causes a turn, and so more elements.
    ///
    /// - Parameters:
    ///   - activities: The activities to deliver.
    ///   - mode: ``Mode/common`` for all common modes.
    ///   - limit: The greatest number of activities that wait for the consumer; a number below 1 traps.
    public func activities(
        _ activities: Activity = .all,
        in mode: Mode = .default,
        limit: Int = 64,
        file: StaticString = #fileID,
        line: UInt = #line
    ) -> AsyncStream<Activity> {
        require(limit > 0, "A sequence of activities needs room for one.", file: file, line: line)
        let (stream, continuation) = AsyncStream.makeStream(of: Activity.self, bufferingPolicy: .bufferingNewest(limit))
        let feed = ActivityFeed(continuation: continuation)
        let observer = LoopObserver(activities: activities, order: .max) { _, activity in feed.yield(activity) }
        continuation.onTermination = { [weak observer] _ in observer?.invalidate() }
        add(observer, to: mode)
        return stream
    }
}

/// The loop's end of a sequence. Only the observer's closure retains it: when the loop releases the observer, the sequence
/// ends.
private final class ActivityFeed: Sendable {
    private let continuation: AsyncStream<EventRunLoop.Activity>.Continuation

    init(continuation: AsyncStream<EventRunLoop.Activity>.Continuation) { self.continuation = continuation }

    deinit { continuation.finish() }

    func yield(_ activity: EventRunLoop.Activity) { continuation.yield(activity) }
}
