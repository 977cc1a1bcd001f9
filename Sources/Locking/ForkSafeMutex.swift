import Builtin
public import CRunLoopShims
public import Synchronization

/// A value and the lock that guards it, stored inline: for state that is rarely contended and must not cost an allocation.
///
/// It replaces Synchronization's `Mutex`, which is a priority-inheriting futex. That futex identifies the thread that holds it
/// by a thread id that the thread has cached: after fork, the child's thread uses its parent's id, and the first contention
/// ends the process. This lock identifies a thread by its thread pointer, which a fork does not change.
///
/// It identifies the thread for one reason: a thread that takes a lock it already holds, in a signal handler, would wait for
/// itself forever. Instead it traps with a message. A lock that another thread holds at a fork stays held in the child. Whoever takes it
/// there waits forever, but for a new thread that has got the other one's stack, and so its thread pointer: that one traps.
///
/// Sendable: the value is accessed only in `withLock`, by the one thread that holds the lock.
public struct ForkSafeMutex<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    @inlinable static var free: UInt { 0 }
    /// Stored in the word beside the holding thread: other threads may be waiting. Thread pointers are even.
    @inlinable static var contended: UInt { 1 }
    /// How often to retry before sleeping: the lock is held for less time than a sleep costs.
    @inlinable static var patience: Int { 40 }

    // Cells have addresses: the kernel waits on one, and the other is written through a borrowed lock.
    @usableFromInline let state = Cell(Atomic<UInt>(0))
    @usableFromInline let value: Cell<Value>

    /// Unlocked, with this value.
    @inlinable
    public init(_ initial: consuming sending Value) { value = Cell(initial) }

    /// Must not be entered again by the same thread. `body` must run no foreign code, including the deinit of objects that a
    /// closure holds.
    @inlinable @inline(__always)
    public borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        lock()
        defer { unlock() }
        // Through a separate pointer: otherwise the thread sanitizer takes this access for an access to the lock as well.
        let value = unsafe self.value.address
        return try unsafe body(&value.pointee)
    }

    /// Nil if the lock is held, whether forever or by the calling thread.
    @inlinable
    public borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        guard
            unsafe state.address.pointee.compareExchange(
                expected: Self.free,
                desired: UInt(run_loop_own_thread_pointer()),
                ordering: .acquiring
            ).exchanged
        else { return nil }
        defer { unlock() }
        let value = unsafe self.value.address
        return try unsafe body(&value.pointee)
    }

    @inlinable @inline(__always)
    borrowing func lock() {
        let state = unsafe self.state.address
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
        let state = unsafe self.state.address
        guard unsafe state.pointee.exchange(Self.free, ordering: .releasing) & Self.contended != 0 else { return }
        unsafe run_loop_futex_wake(state, 1)
    }

    @inlinable @inline(never)
    borrowing func waitFor(_ state: UnsafeMutablePointer<Atomic<UInt>>, _ own: UInt) {
        // No other thread writes this thread's pointer there, so a relaxed load gives the correct answer to this comparison.
        if unsafe state.pointee.load(ordering: .relaxed) & ~Self.contended == own { run_loop_trap_relocking() }
        for _ in 0..<Self.patience {
            if unsafe take(state, as: own) { return }
        }
        // Taken as contended: other threads may be asleep.
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

    /// Sleeps only on a word whose mark makes the unlocking thread wake a waiter. The kernel compares its lower half, which has
    /// the mark.
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

/// Memory for one value, inline, that is written through a borrowed owner. Synchronization makes its own lock of the same; before Swift
/// 6.3 that type is not public.
@usableFromInline
@_rawLayout(like: Value, movesAsLike)
package struct Cell<Value: ~Copyable>: ~Copyable {
    @inlinable
    package init(_ initial: consuming Value) { unsafe address.initialize(to: initial) }

    /// Valid while the cell is borrowed.
    @inlinable
    package var address: UnsafeMutablePointer<Value> { unsafe UnsafeMutablePointer(Builtin.addressOfRawLayout(self)) }

    @inlinable
    deinit { unsafe address.deinitialize(count: 1) }
}
