internal import CRunLoopShims

/// Makes a callback of an item, or the body of a perform, from a closure that is isolated to the main actor and uses its state
/// directly:
///
///     EventRunLoop.main.add(EventTimer(every: .seconds(1), onMainActor { _ in counter += 1 }))
///     EventRunLoop.main.perform(onMainActor { counter += 1 })
///
/// On the main thread, where all callbacks of ``EventRunLoop/main`` run, the closure is called at once (R59). An item of another
/// loop passes each call to the main loop, in its common modes, and continues: what an observer sees is over by then, and a
/// descriptor source delivers the same event again until the closure has read the descriptor. Any thread may call this.
public func onMainActor<each Argument: Sendable>(
    _ callback: @escaping @MainActor (repeat each Argument) -> Void
) -> @Sendable (repeat each Argument) -> Void {
    { (argument: repeat each Argument) in
        let arguments = (repeat each argument)
        if run_loop_is_main_thread() { return MainActor.assumeIsolated { callback(repeat each arguments) } }
        EventRunLoop.main.perform { MainActor.assumeIsolated { callback(repeat each arguments) } }
    }
}
