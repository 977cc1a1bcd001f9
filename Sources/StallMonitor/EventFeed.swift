import Locking
public import StallReports

/// Hands each event on: to the handler that the start was given, and to whoever iterates over the monitor's events.
final class EventFeed: Sendable {
    private struct State: Sendable {
        var continuations: [Int: AsyncStream<StallEvent>.Continuation] = [:]
        var last = 0
        var isFinished = false
        /// What the monitor cannot do, until it is mended.
        var faults: [StallMonitorError.Code: StallMonitorError] = [:]
    }

    private let handler: @Sendable (StallEvent) -> Void
    private let state = ForkSafeMutex(State())

    init(_ handler: @escaping @Sendable (StallEvent) -> Void) { self.handler = handler }

    /// What the monitor cannot do at present.
    var faults: [StallMonitorError] { state.withLock { Array($0.faults.values) } }

    func tell(_ event: StallEvent) {
        switch event {
        // A loss is over as soon as it is told: nothing mends it, and the monitor can do all that it could.
        case .fault(let error) where error.code == .reportsLost: break
        case .fault(let error): state.withLock { $0.faults[error.code] = error }
        case .mended(let error): state.withLock { $0.faults[error.code] = nil }
        case .began, .grew, .ended, .suppressed: break
        }
        // Yielded outside: it wakes a task, and may run its executor's code.
        for continuation in state.withLock({ Array($0.continuations.values) }) { continuation.yield(event) }
        handler(event)
    }

    /// Nothing comes any more.
    func finish() {
        let continuations = state.withLock { state in
            defer { (state.continuations, state.isFinished) = ([:], true) }
            return Array(state.continuations.values)
        }
        for continuation in continuations { continuation.finish() }
    }

    func makeStream(keeping newest: Int) -> AsyncStream<StallEvent> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: StallEvent.self,
            bufferingPolicy: .bufferingNewest(max(1, newest))
        )
        let number = state.withLock { state -> Int? in
            guard !state.isFinished else { return nil }
            state.last += 1
            state.continuations[state.last] = continuation
            return state.last
        }
        guard let number else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in
            let former = self?.state.withLock { $0.continuations.removeValue(forKey: number) }
            _ = consume former
        }
        return stream
    }
}

/// What the monitor tells the process it runs in. A handler is called on the reporter's thread, one event at a time; while it
/// runs, later events wait, and detection goes on.
public enum StallEvent: Sendable {
    /// A stall was detected, and goes on.
    case began(StallReport)
    /// It has lasted twice as long as when it was last told of, or 10 s longer.
    case grew(StallReport)
    /// It is over, or nobody looks at it any more (`abandoned`): the report is final.
    case ended(StallReport)
    /// A stall is over that was only counted, since its fault was reported not long ago or too many reports were written: see
    /// ``RepeatRule``. Told once, in the place of `began`, `grew` and `ended`.
    case suppressed(SuppressedStall)
    /// The monitor cannot do part of its work. Told once for each cause, until it is mended.
    case fault(StallMonitorError)
    /// What that fault was told for works again.
    case mended(StallMonitorError)
}
