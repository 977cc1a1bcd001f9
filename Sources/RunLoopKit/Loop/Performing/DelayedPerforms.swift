import Locking

extension EventRunLoop {
    /// Runs `body` once, on the loop's thread, after `delay`, in whichever of the modes runs then (R53). Any thread; not in a
    /// signal handler.
    ///
    /// Bodies with equal delays run in the order of the calls. If the loop ends first, `body` is released without running.
    ///
    /// - Parameters:
    ///   - delay: Zero or less: in the next turn that checks timers.
    ///   - modes: At least one; an empty array traps. By default all common modes.
    ///   - target: The owner of the perform, for ``cancelPerforms(target:)``. It is not retained, and is identified by its
    ///     identity only: a target that may be released before `body` must cancel in its deinit.
    /// - Returns: A handle that cancels this perform.
    @discardableResult
    public func perform(
        after delay: Duration,
        in modes: [Mode] = [.common],
        target: AnyObject? = nil,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) -> DelayedPerform {
        requireMode(in: modes, file, line)
        let date = MonotonicInstant.now.advanced(by: max(delay, .zero))
        // It gets its date once it is in all its modes and recorded. Otherwise it could finish in the middle of that.
        let timer = EventTimer(at: .distantFuture) { [delayed] timer in
            delayed.forget(timer)
            body()
        }
        for mode in modes { add(timer, to: mode) }
        if !isOfParent, delayed.record(timer, target: target.map { ObjectIdentifier($0) }) {
            timer.nextFireDate = date
        } else {
            timer.invalidate()
        }
        return DelayedPerform(timer, of: delayed)
    }

    /// Cancels every perform after a delay that was requested with this target on this loop and has not begun (R53). Any
    /// thread, even inside a callout, where it stops performs that are due in the same turn.
    public func cancelPerforms(target: AnyObject) { delayed.cancelAll(of: ObjectIdentifier(target)) }
}

/// One perform after a delay (R53), which it can cancel.
public struct DelayedPerform: Sendable {
    private let timer: EventTimer
    private let performs: DelayedPerforms

    init(_ timer: EventTimer, of performs: DelayedPerforms) {
        self.timer = timer
        self.performs = performs
    }

    /// Whether it has not run yet or is running now. Any thread.
    public var isPending: Bool { timer.isValid }

    /// Prevents it from running, and frees its body, if it has not begun. Any thread; a second call has no effect.
    public func cancel() {
        performs.forget(timer)
        timer.invalidate()
    }
}

/// A loop's performs after a delay, grouped by target.
final class DelayedPerforms: Sendable {
    private typealias Timers = [ObjectIdentifier: EventTimer]

    private struct State: Sendable {
        /// The key nil is for timers without a target.
        var targets: [ObjectIdentifier?: Timers] = [:]
        var targetsOfTimers: [ObjectIdentifier: ObjectIdentifier?] = [:]
        var isClosed = false
    }

    private let state = ForkSafeMutex(State())

    /// False if the loop has ended; the timer is then not kept.
    func record(_ timer: EventTimer, target: ObjectIdentifier?) -> Bool {
        state.withLock { state in
            guard !state.isClosed else { return false }
            let id = ObjectIdentifier(timer)
            state.targets[target, default: [:]][id] = timer
            state.targetsOfTimers[id] = .some(target)
            return true
        }
    }

    /// Removes a timer that fires or was cancelled. The caller releases it.
    func forget(_ timer: EventTimer) {
        state.withLock { state in
            let id = ObjectIdentifier(timer)
            guard let target = state.targetsOfTimers.removeValue(forKey: id) else { return }
            state.targets[target]?[id] = nil
            if state.targets[target]?.isEmpty == true { state.targets[target] = nil }
        }
    }

    func cancelAll(of target: ObjectIdentifier) {
        let timers: Timers = state.withLock { state in
            let timers = state.targets.removeValue(forKey: target) ?? [:]
            for id in timers.keys { state.targetsOfTimers[id] = nil }
            return timers
        }
        for timer in timers.values { timer.invalidate() }
    }

    /// The loop has ended: frees the bodies.
    func close() {
        let targets = state.withLock { state in
            defer { state = State(isClosed: true) }
            return state.targets
        }
        for timer in targets.values.flatMap(\.values) { timer.invalidate() }
    }
}
