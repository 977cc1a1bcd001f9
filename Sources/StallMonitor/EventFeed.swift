import CRunLoopShims
import Glibc
import Locking
public import StallReports

/// Passes each event to the handler given at the start, and to every sequence of the monitor's events.
final class EventFeed: Sendable {
    private struct State: Sendable {
        var continuations: [Int: AsyncStream<StallEvent>.Continuation] = [:]
        var last = 0
        var isFinished = false
        /// What the monitor cannot do at present.
        var faults: [StallMonitorError.Code: StallMonitorError] = [:]
    }

    private let handler: @Sendable (StallEvent) -> Void
    private let state = ForkSafeMutex(State())

    init(_ handler: @escaping @Sendable (StallEvent) -> Void) { self.handler = handler }

    /// What the monitor cannot do at present.
    var faults: [StallMonitorError] { state.withLock { Array($0.faults.values) } }

    func send(_ event: StallEvent) {
        switch event {
        // A loss of reports is over at once: the monitor can still do everything.
        case .fault(let error) where error.code == .reportsLost: break
        case .fault(let error): state.withLock { $0.faults[error.code] = error }
        case .mended(let error): state.withLock { $0.faults[error.code] = nil }
        case .began, .grew, .ended, .suppressed: break
        }
        // Yielded outside the lock: it wakes a task, and may run its executor's code.
        for continuation in state.withLock({ Array($0.continuations.values) }) { continuation.yield(event) }
        handler(event)
    }

    /// Ends all sequences: there are no more events.
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

/// What the monitor reports to its process. A handler is called on the reporter's thread, one event at a time. While it runs,
/// later events wait, and detection continues.
///
/// That thread blocks signals, among them SIGINT and SIGTERM, as the workers of tasks and queues do. A process or thread that a
/// handler starts inherits this (signal(7)): a process is then ended by SIGKILL only, unless it unblocks signals itself.
public indirect enum StallEvent: Sendable {
    /// A stall was detected and is ongoing.
    case began(StallReport)
    /// It has lasted twice as long as at the last event, or 10 s longer.
    case grew(StallReport)
    /// It is over, or is no longer watched (`abandoned`). The report is final.
    case ended(StallReport)
    /// A stall that was only counted is over: its fault was reported recently, or too many reports were written. See
    /// ``RepeatRule``. Sent once, instead of `began`, `grew` and `ended`.
    case suppressed(SuppressedStall)
    /// The monitor cannot do part of its work. Sent once for each cause, until that is over.
    case fault(StallMonitorError)
    /// A fault is over.
    case mended(StallMonitorError)
}

/// A stall that was only counted. The monitor finds out no more about it than this.
public struct SuppressedStall: Hashable, Sendable {
    /// Its fault.
    public var fingerprint: Fingerprint
    /// The rule by which it was a stall.
    public var kind: StallKind
    /// Why it was not reported.
    public var reason: SuppressionReason
    /// The type of the watched loop.
    public var type: WatchedType
    /// The label of the watched loop.
    public var label: String
    /// The last transition before the stall.
    public var startedAt: Timestamp
    /// How long it lasted, in nanoseconds.
    public var durationNs: Int64
    /// The sum of its fault since the last report, including this stall.
    public var repeats: StallReport.Repeats
}

/// The lines on standard error: faults, for a server without a handler, and why the process ends.
package enum StandardError {
    @Sendable package static func log(_ event: StallEvent) {
        switch event {
        case .fault(let error): write("stall-monitor: \(error)\n")
        case .mended(let error): write("stall-monitor: This is over: \(error)\n")
        default: break
        }
    }

    /// Drops the line if it could do harm there, or if nobody reads the pipe for a second.
    package static func write(_ line: String, to descriptor: Int32 = STDERR_FILENO) {
        guard run_loop_takes_lines(descriptor) else { return }
        _ = unsafe Glibc.write(descriptor, line, line.utf8.count)
    }
}
