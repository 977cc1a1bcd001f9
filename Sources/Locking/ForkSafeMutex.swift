public import CRunLoopShims
public import Synchronization

/// A value and the lock that guards it, in place: for what is seldom contended, and must not cost an allocation.
///
/// In the place of Synchronization's `Mutex`. That is a priority-inheriting futex that must know the thread that holds it, and goes by
/// a number that the thread has cached: after fork, the child's thread goes by its parent's, and the first contention ends the process.
/// This one knows a thread by its thread pointer, which a fork leaves as it is.
///
/// It knows it for one reason: a thread that comes back to a lock that it holds, in a signal handler, would wait for itself for ever. It
/// is told what it did, and trapped.
///
/// Sendable: the value is only touched in `withLock`, by the one thread that holds the lock.
public struct ForkSafeMutex<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    @inlinable static var free: UInt { 0 }
    /// In the word beside the thread that holds it: perhaps it is waited for. Thread pointers are even.
    @inlinable static var contended: UInt { 1 }
    /// How often to look again before sleeping: what is guarded is held for less than a sleep costs.
    @inlinable static var patience: Int { 40 }

    // Cells (of Synchronization, which makes its own lock of them) have addresses: the kernel waits at one, and the other is written
    // through a borrowed lock.
    @usableFromInline let state = _Cell(Atomic<UInt>(0))
    @usableFromInline let value: _Cell<Value>

    @inlinable
    public init(_ initial: consuming sending Value) { value = _Cell(initial) }

    /// Not to be entered again by the same thread; `body` must run no foreign code, the deinit of what a closure holds included.
    @inlinable @inline(__always)
    public borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        lock()
        defer { unlock() }
        // By a pointer of its own: else the thread sanitizer takes the access for one to the lock as well.
        let value = unsafe self.value._address
        return try unsafe body(&value.pointee)
    }

    /// Nil if the lock is held, be it for ever, be it by the calling thread.
    @inlinable
    public borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        guard
            unsafe state._address.pointee.compareExchange(
                expected: Self.free,
                desired: UInt(run_loop_own_thread_pointer()),
                ordering: .acquiring
            ).exchanged
        else { return nil }
        defer { unlock() }
        let value = unsafe self.value._address
        return try unsafe body(&value.pointee)
    }

    @inlinable @inline(__always)
    borrowing func lock() {
        let state = unsafe self.state._address
        let own = UInt(run_loop_own_thread_pointer())
        let took = unsafe state.pointee.compareExchange(
            expected: Self.free,
            desired: own,
            successOrdering: .acquiring,
            failureOrdering: .relaxed
        ).exchanged
        if !took { unsafe waitFor(state, own) }
    }

    @inlinable @inline(__always)
    borrowing func unlock() {
        let state = unsafe self.state._address
        guard unsafe state.pointee.exchange(Self.free, ordering: .releasing) & Self.contended != 0 else { return }
        unsafe run_loop_futex_wake(state, 1)
    }

    @inlinable @inline(never)
    borrowing func waitFor(_ state: UnsafeMutablePointer<Atomic<UInt>>, _ own: UInt) {
        // Nobody else writes this thread's pointer there, so what a relaxed load finds of it is true.
        if unsafe state.pointee.load(ordering: .relaxed) & ~Self.contended == own { run_loop_trap_relocking() }
        for _ in 0..<Self.patience {
            if unsafe take(state, as: own) { return }
        }
        // Taken as contended: there may be others that sleep.
        while unsafe !take(state, as: own | Self.contended) { unsafe sleep(state) }
    }

    @inlinable
    borrowing func take(_ state: UnsafeMutablePointer<Atomic<UInt>>, as owner: UInt) -> Bool {
        unsafe state.pointee.weakCompareExchange(
            expected: Self.free,
            desired: owner,
            successOrdering: .acquiring,
            failureOrdering: .relaxed
        ).exchanged
    }

    /// Sleeps only behind a word that makes whoever unlocks wake one. The kernel compares its lower half, which has the mark.
    @inlinable
    borrowing func sleep(_ state: UnsafeMutablePointer<Atomic<UInt>>) {
        let seen = unsafe state.pointee.load(ordering: .relaxed)
        guard seen != Self.free else { return }
        let marked = seen | Self.contended
        if seen != marked {
            let marks = unsafe state.pointee.weakCompareExchange(expected: seen, desired: marked, ordering: .relaxed)
            guard marks.exchanged else { return }
        }
        _ = unsafe run_loop_futex_wait(state, UInt32(truncatingIfNeeded: marked), .max)
    }
}
