import Locking
import Synchronization

/// The receiver of a notification that a loop leaves its rest.
public protocol LoopWatcher: AnyObject, Sendable {
    /// Called on the loop's thread, at most once per request. The loop is held up until it returns: post a semaphore and
    /// return. It must not block, attach or detach.
    func loopDidLeaveRest()
}

// MARK: - What a watcher does with a heartbeat

extension LoopHeartbeat {
    /// Attaches `watcher`, and clears old stamps and turn lengths. Returns false if a watcher is already attached. Any
    /// thread.
    public func attach(_ watcher: any LoopWatcher) -> Bool {
        self.watcher.withLock { present in
            guard present == nil else { return false }
            present = watcher
            stampOfTurn.store(0, ordering: .relaxed)
            stampOfTransition.store(0, ordering: .relaxed)
            tally.keep(longerThan: .max)
            tally.prepare()
            requests.store(Request.watched | Request.freshTally, ordering: .sequentiallyConsistent)
            return true
        }
    }

    /// Whether a watcher is attached. Any thread; wait-free.
    package var isWatched: Bool { requests.load(ordering: .acquiring) & Request.watched != 0 }

    /// Removes the watcher and its requests. It is never called again after this method returns. Any thread, but not from
    /// inside ``LoopWatcher/loopDidLeaveRest()``.
    public func detach() {
        let former = watcher.withLock { present in
            requests.store(0, ordering: .sequentiallyConsistent)
            return present.take()
        }
        // Released outside the lock: its deinit is foreign code and must not run under the lock.
        _ = consume former
    }

    /// Like ``detach()``, in a fork's child. A thread of the parent may hold the lock there forever: then the watcher stays, and is
    /// not called.
    package func detachInChild() {
        requests.store(0, ordering: .sequentiallyConsistent)
        let former = watcher.withLockIfAvailable { present in present.take() }
        _ = consume former
    }

    /// Requests that the next departure from rest call the watcher, once.
    ///
    /// - Returns: True if the call is still to come or has just been made. False if the loop is busy or has ended; the request
    ///   is then withdrawn. A departure is never lost (proof at `publish`). Call it on the watcher's thread only.
    public func requestWakeSignal() -> Bool {
        requests.bitwiseOr(Request.wakeSignal, ordering: .sequentiallyConsistent)
        let seen = Pulse(rawValue: word.load(ordering: .sequentiallyConsistent))
        if seen.isAtRest && !ended.load(ordering: .sequentiallyConsistent) { return true }
        // Busy. If the bit is already cleared, the departure that we raced with has taken the request and makes the
        // call.
        let before = requests.bitwiseAnd(~Request.wakeSignal, ordering: .sequentiallyConsistent).oldValue
        return before & Request.wakeSignal == 0
    }

    /// Requests that the next transition or callout record its time, so that a stall's end is exact at no cost to other
    /// turns.
    ///
    /// A transition made within the same few nanoseconds can miss the request; then the one after it records. Any
    /// thread.
    public func requestTransitionStamp() {
        stampOfTransition.store(0, ordering: .relaxed)
        // Releasing: the zero above comes before the stamp that answers this request.
        requests.bitwiseOr(Request.transitionStamp, ordering: .releasing)
    }

    /// Returns the recorded time (CLOCK_MONOTONIC, nanoseconds) and clears it; nil if there is none. Any thread.
    public func takeTransitionStamp() -> UInt64? {
        let stamp = stampOfTransition.exchange(0, ordering: .acquiringAndReleasing)
        return stamp == 0 ? nil : stamp
    }
}
