extension EventRunLoop {
    /// Runs `body` once, on the loop's thread, after `delay`, in whichever of the modes runs then (R53). Any thread; not in a
    /// signal handler.
    ///
    /// Those with equal delays run in the order of the calls. If the loop ends first, `body` is released unrun.
    ///
    /// - Parameters:
    ///   - delay: Zero or less: in the next turn that looks at timers.
    ///   - modes: At least one; none traps. By default the default mode alone.
    ///   - target: Whose perform it is, for ``cancelPerforms(target:)``. Not retained, and known by its identity only: one that does not
    ///     live as long as `body` has to cancel in its deinit.
    /// - Returns: What cancels this one.
    @discardableResult
    public func perform(
        after delay: Duration,
        inModes modes: [Mode] = [.default],
        target: AnyObject? = nil,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) -> DelayedPerform {
        requireMode(in: modes, file, line)
        let date = MonotonicInstant.now.advanced(by: max(delay, .zero))
        // Never due before it is in all its modes and recorded: so it cannot be over in the middle of that.
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

    /// Cancels every perform after a delay that was asked for with this target on this loop and has not begun (R53). Any thread; also
    /// from inside a callout, where it stops those that are due in the same turn.
    public func cancelPerforms(target: AnyObject) { delayed.cancelAll(of: ObjectIdentifier(target)) }
}
