extension EventRunLoop {
    /// What the loop does in a mode from now on, as an asynchronous sequence for one consumer (R38).
    ///
    /// Never holds up the loop: a consumer that falls behind by more than `limit` misses the oldest. The observer leaves the loop when
    /// the consumer is cancelled or lets go of the sequence; the sequence ends when the loop's thread does. Any thread.
    ///
    /// Consume it elsewhere: on the loop itself, each element would be work that makes for a turn, and so for more elements.
    ///
    /// - Parameters:
    ///   - activities: Those to be told.
    ///   - mode: ``Mode/common`` for all common modes.
    ///   - limit: How many activities wait for the consumer, at the most; at least 1, less traps.
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

/// The loop's end of a sequence. The observer's closure alone holds it: when the loop lets go of the observer, the sequence ends.
private final class Outlet: Sendable {
    private let continuation: AsyncStream<EventRunLoop.Activity>.Continuation

    init(continuation: AsyncStream<EventRunLoop.Activity>.Continuation) { self.continuation = continuation }

    deinit { continuation.finish() }

    func tell(_ activity: EventRunLoop.Activity) { continuation.yield(activity) }
}
