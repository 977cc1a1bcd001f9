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
        let outlet = Outlet(continuation: continuation)
        let observer = LoopObserver(activities: activities, order: .max) { _, activity in outlet.tell(activity) }
        continuation.onTermination = { [weak observer] _ in observer?.invalidate() }
        add(observer, to: mode)
        return stream
    }
}

/// The loop's end of a sequence. Only the observer's closure retains it: when the loop releases the observer, the sequence
/// ends.
private final class Outlet: Sendable {
    private let continuation: AsyncStream<EventRunLoop.Activity>.Continuation

    init(continuation: AsyncStream<EventRunLoop.Activity>.Continuation) { self.continuation = continuation }

    deinit { continuation.finish() }

    func tell(_ activity: EventRunLoop.Activity) { continuation.yield(activity) }
}
