import CRunLoopShims
// Links libdispatch, which the shims call.
private import Dispatch
import Glibc
import Synchronization

/// The main loop's integration with the main dispatch queue (R58), and through it with the main actor. The loop's thread only;
/// the atomics only satisfy the compiler's concurrency checks, and are relaxed.
///
/// libdispatch writes to an eventfd when work is enqueued. The sets of common modes watch it edge-triggered, so that a drain
/// costs no read. An edge seen while draining is not allowed (inside a drain) is remembered here.
final class MainQueue: Sendable {
    private let isReadyFlag = Atomic<Bool>(false)
    private let isDrainingFlag = Atomic<Bool>(false)
    /// The number of epoll sets that watch the eventfd. With one, each edge is one readiness. With more, each gets every edge,
    /// and an event counts only if the eventfd has something to read. (A set that was recreated counts twice, which only costs
    /// additional reads.)
    private let watchers = Atomic<Int>(0)

    /// A check has found work whose edge no set has reported yet.
    private let hasChecked = Atomic<Bool>(false)

    private let wasPassedOverFlag = Atomic<Bool>(false)

    /// There may be work that no drain has served.
    var isReady: Bool { isReadyFlag.load(ordering: .relaxed) }
    /// A turn has handled something else although there was work. Until the next drain the queue precedes everything else, also in
    /// the first turn of another run: otherwise runs of one turn each could leave it out forever (R36).
    var wasPassedOver: Bool { wasPassedOverFlag.load(ordering: .relaxed) }
    /// A drain is on the stack.
    var isDraining: Bool { isDrainingFlag.load(ordering: .relaxed) }

    /// False in a child forked after the queue had been taken over: libdispatch does not work there.
    var isUsable: Bool {
        if run_loop_main_queue_is_usable() { return true }
        LoopWarning.mainQueueForked.printOnce()
        return false
    }

    /// Watches the queue in a mode's set; if that is not possible now, the next call tries again. Work that is already there is
    /// reported again.
    func watch(in mode: LoopMode) {
        let eventfd = run_loop_main_queue_eventfd()
        let events = EPOLLIN.rawValue | EPOLLET.rawValue
        guard eventfd >= 0, mode.addOwn(eventfd, events: events, token: Poller.mainQueueToken) == nil else {
            // If the set was found closed, there is no shortage: that has its own warning, and the next set takes the eventfd.
            if mode.poller.isOpen { LoopWarning.mainQueueUnwatched.printOnce() }
            return
        }
        mode.poller.watchesMainQueue.store(true, ordering: .relaxed)
        watchers.add(1, ordering: .relaxed)
    }

    func noteEvent() {
        let mayBeStale = watchers.load(ordering: .relaxed) > 1 || hasChecked.exchange(false, ordering: .relaxed)
        if mayBeStale, !run_loop_main_queue_take() { return }
        isReadyFlag.store(true, ordering: .relaxed)
    }

    /// Checks for work without a set. A set may still report the edge of the same work, which must not count twice.
    func check() {
        guard run_loop_main_queue_take() else { return }
        hasChecked.store(true, ordering: .relaxed)
        isReadyFlag.store(true, ordering: .relaxed)
    }

    /// Replaces watching. If the eventfd's number now belongs to another file, nothing is known: there may be work at any time.
    func checkUnwatched() {
        if run_loop_main_queue_eventfd() >= 0 {
            check()
        } else if errno == EBADF {
            isReadyFlag.store(true, ordering: .relaxed)
        }
    }

    func notePassedOver() { wasPassedOverFlag.store(true, ordering: .relaxed) }

    /// Does the work that is on the queue now. Not inside a drain.
    func drain() {
        isReadyFlag.store(false, ordering: .relaxed)
        wasPassedOverFlag.store(false, ordering: .relaxed)
        // Work that was enqueued since the event is also done in this drain, so its edges, which the sets have still to report,
        // are void.
        if watchers.load(ordering: .relaxed) > 1 { _ = run_loop_main_queue_take() }
        isDrainingFlag.store(true, ordering: .relaxed)
        event_run_loop_is_servicing_the_main_dispatch_queue()
        isDrainingFlag.store(false, ordering: .relaxed)
    }
}

/// Drains the main queue for an async `main` (R60): runs the main loop forever. The process ends with `exit`.
@_cdecl("event_run_loop_run_main")
func runMainForEver() {
    while true {
        EventRunLoop.main.run()
        // In a forked child the loop can be empty: the main queue is the parent's.
        if !EventRunLoop.main.mainQueue.isUsable { usleep(10_000) }
    }
}

/// Makes a callback of an item, or the body of a perform, from a closure that is isolated to the main actor and uses its state
/// directly:
///
///     EventRunLoop.main.add(EventTimer(every: .seconds(1), onMainActor { _ in counter += 1 }))
///     EventRunLoop.main.perform(onMainActor { counter += 1 })
///
/// On the main thread, where all callbacks of ``EventRunLoop/main`` run, the closure is called at once (R59). An item of another
/// loop passes each call to the main loop, in its common modes, and does not wait for it. When the closure runs, the phase that an
/// observer saw is over. A descriptor source delivers the same event again until the closure has read the descriptor. Any thread may
/// call this.
public func onMainActor<each Argument: Sendable>(
    _ callback: @escaping @MainActor (repeat each Argument) -> Void
) -> @Sendable (repeat each Argument) -> Void {
    { (argument: repeat each Argument) in
        let arguments = (repeat each argument)
        if run_loop_is_main_thread() { return MainActor.assumeIsolated { callback(repeat each arguments) } }
        EventRunLoop.main.perform { MainActor.assumeIsolated { callback(repeat each arguments) } }
    }
}
