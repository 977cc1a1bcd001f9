import CRunLoopShims
import Locking
import RunLoopKit
import StallDiagnosis
import StallReports

/// The thread that waits for the disk, or for another sink, so that no other thread has to.
///
/// It exists while there is something to write, and for a few seconds after that. While the disk refuses, it waits for the next
/// try.
final class ReportWriter: Sendable {
    /// What other threads can read of its state.
    struct Status: Sendable {
        var problem: ReportError?
        /// Problems of the directory, as of the last time it could be written.
        var concerns: Set<ReportDirectory.Concern> = []
        /// Since when the present step lasts, how long it may take, and the thread that carries it out.
        var busy: (since: MonotonicInstant, patience: Duration, thread: Int32)?
        var waitingReports = 0
        var waitingBytes = 0
        var peakBytes = 0
        var lost = 0
        /// Reports that did not reach the writer: they could not be encoded, or there was no time left.
        var unmade = 0
        var failures = 0
        var bytesWritten: Int64 = 0
        /// The longest write so far.
        var longestWrite = Duration.zero
        /// How long the last step took.
        var lastStep = Duration.zero

        /// Whether the present step, if there is one, is usually quick.
        var isQuick: Bool { busy.map { $0.patience <= ReportWriter.writeTimeout } ?? true }

        /// Whether the present step takes longer than it may.
        func isOverdue(at now: MonotonicInstant) -> Bool {
            busy.map { now - $0.since >= $0.patience } ?? false
        }

        /// Whether the sink keeps the present step for longer than it may. A thread that is ready to run waits for a processor, and not for a
        /// sink. Not on the writer's own thread, which runs then.
        func hangs(at now: MonotonicInstant) -> Bool {
            guard let busy, isOverdue(at: now) else { return false }
            return ThreadEvidence.read(threadID: busy.thread)?.state != "R"
        }
    }

    private struct State: Sendable {
        var queue: WriteQueue
        var status = Status()
        var isAwaited = false
        var hasGivenUp = false
        /// The sink's limits from the next step on.
        var newLimits: ReportDirectory.Limits?
    }

    /// Locked while the sink works, by the thread that carries out steps: one at a time.
    private let sink: ForkSafeMutex<any ReportSink>
    /// The sink's name in messages.
    let sinkName: String
    /// A write that takes longer is overdue. It hangs if its thread is not ready to run then.
    static let writeTimeout = Duration.seconds(2)
    /// Cleaning up a directory of a thousand reports takes a while.
    static let prepareTimeout = Duration.seconds(30)

    private let state: ForkSafeMutex<State>
    private let orders = TickSemaphore()
    private let answers = TickSemaphore()
    private let meter: CostMeter
    private let changed: @Sendable () -> Void
    private let thread: ThreadOnDemand?

    /// - Parameters:
    ///   - changed: Called on the writer's thread when the disk has begun or stopped to answer while no thread waited for it.
    ///   - startsThread: Whether an order starts the writer's thread. Otherwise the caller runs it.
    init(
        sink: any ReportSink,
        limits: StallMonitor.MemoryLimits,
        meter: CostMeter,
        changed: @escaping @Sendable () -> Void,
        startsThread: Bool = false
    ) {
        sinkName = sink.name
        self.sink = ForkSafeMutex(sink)
        self.meter = meter
        self.changed = changed
        thread = startsThread ? ThreadOnDemand(name: "stall-writer") : nil
        state = ForkSafeMutex(State(queue: WriteQueue(limits: limits)))
    }

    /// Changes what has to be done. Any thread; never waits for the disk.
    func order(_ change: (inout WriteQueue) -> Void) {
        state.withLock { state in
            change(&state.queue)
            state.status.adopt(state.queue)
        }
        demandThread()
        orders.signal()
    }

    /// Sets how much the directory may contain, from the next write on. Any thread; never waits for the disk.
    func adopt(_ limits: ReportDirectory.Limits) { state.withLock { $0.newLimits = limits } }

    /// Starts the thread unless it runs. Returns whether it runs now.
    @discardableResult
    private func demandThread() -> Bool { thread?.demand { [self] in run() } ?? true }

    /// Waits until the thread has ended, which happens once the queue is closed and was tried, as ``TickSemaphore/wait(within:)``
    /// does. Returns whether it has ended.
    func join(within patience: inout Duration) -> Bool { thread?.join(within: &patience) ?? true }

    /// Waits until everything given so far was tried, as ``TickSemaphore/wait(within:)`` does. Returns whether it was. One thread at a time.
    func wait(within patience: inout Duration) -> Bool {
        while true {
            let isIdle = state.withLock { state in
                let isIdle = state.status.busy == nil && !state.queue.hasUntried
                state.isAwaited = !isIdle
                return isIdle
            }
            if isIdle { return true }
            // Writing a report is more important than a reporter that never waits for a disk.
            if !demandThread() { thread?.replace { carryOutSteps(onOwnThread: false) } }
            guard answers.wait(within: &patience) else {
                state.withLock { $0.isAwaited = false }
                return false
            }
        }
    }

    var status: Status { state.withLock { $0.status } }

    /// Sets how many reports did not reach the writer, in all. Any thread.
    func note(unmade count: Int) { state.withLock { $0.status.unmade = count } }

    /// Whether nobody waits for the disk any more, because `stop` has waited for nearly as long as it may.
    var hasGivenUp: Bool { state.withLock { $0.hasGivenUp } }

    func giveUp() { state.withLock { $0.hasGivenUp = true } }

    /// The body of the thread. Returns after the queue was closed and everything in it was tried once more. The writer's own
    /// thread also returns when it has had nothing to do for a while.
    func run() {
        meter.beginsWriting()
        while case .wait(let deadline) = carryOutSteps(onOwnThread: true), park(until: deadline) {}
    }

    /// Does what can be done now.
    ///
    /// - Parameter onOwnThread: Whether the calling thread's processor time is the cost of writing.
    /// - Returns: The step that is left: to wait, or to end.
    @discardableResult
    private func carryOutSteps(onOwnThread: Bool) -> WriteQueue.Step {
        let thread = run_loop_own_tid()
        while true {
            let now = MonotonicInstant.now
            let step = state.withLock { state in
                let step = state.queue.next(at: now)
                state.status.busy = step.patience.map { (now, $0, thread) }
                return step
            }
            switch step {
            case .prepare(let closing):
                carryOut(step, onOwnThread) { sink throws(ReportError) in
                    .init(bytes: 0, concerns: try sink.prepare(closing: closing))
                }
            case .write(let document):
                carryOut(step, onOwnThread) { sink throws(ReportError) in
                    try sink.write(document.bytes, as: document.name)
                }
            case .wait, .end:
                answer(didChange: false)
                return step
            }
        }
    }

    /// - Returns: False if the thread must end.
    private func park(until deadline: MonotonicInstant?) -> Bool {
        guard deadline == nil, let thread else {
            _ = orders.wait(until: deadline)
            return true
        }
        return orders.wait(until: .now + ThreadOnDemand.idleTime) || !thread.leave { isAtRest }
    }

    /// Whether there is nothing to do, now or later.
    private var isAtRest: Bool {
        state.withLock { state in
            var queue = state.queue
            return queue.next(at: .now) == .wait(until: nil)
        }
    }

    private func carryOut(
        _ step: WriteQueue.Step,
        _ onOwnThread: Bool,
        _ work: (inout any ReportSink) throws(ReportError) -> ReportDirectory.Written
    ) {
        let start = MonotonicInstant.now
        let limits = state.withLock { $0.newLimits.take() }
        let result = sink.withLock { sink in
            if let limits { sink.adopt(limits) }
            return Result { () throws(ReportError) in try work(&sink) }
        }
        let end = MonotonicInstant.now
        if onOwnThread { meter.spent(.writing) }
        let didChange = state.withLock { state in
            let before = state.status
            state.queue.note(result, of: step, at: end)
            state.status.busy = nil
            state.status.adopt(state.queue)
            state.status.longestWrite = max(before.longestWrite, end - start)
            state.status.lastStep = end - start
            if case .success(let written) = result {
                state.status.bytesWritten += Int64(written.bytes)
                state.status.concerns = written.concerns
            }
            return before.isOverdue(at: end) || (before.problem == nil) != (state.status.problem == nil)
        }
        answer(didChange: didChange)
    }

    private func answer(didChange: Bool) {
        let isAwaited = state.withLock { $0.isAwaited }
        if isAwaited { answers.signal() } else if didChange { changed() }
    }
}

extension ReportWriter.Status {
    fileprivate mutating func adopt(_ queue: WriteQueue) {
        (problem, failures, lost) = (queue.problem, queue.failures, queue.documents.lost)
        (waitingReports, waitingBytes) = (queue.documents.waitingReports, queue.documents.waitingBytes)
        peakBytes = queue.documents.peakBytes
    }
}
