internal import CRunLoopShims
internal import Synchronization

/// A value and the lock that guards it, in place: for what is seldom contended, and must not cost an allocation.
///
/// In the place of Synchronization's `Mutex`, whose name it takes in this module. That is a priority-inheriting futex that must know the
/// thread that holds it, and goes by a number that the thread has cached: after fork, the child's thread goes by its parent's, and the
/// first contention ends the process. This one does not know threads.
///
/// Sendable: the value is only touched in `withLock`, by the one thread that holds the lock.
struct Mutex<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    private static var free: UInt32 { 0 }
    private static var held: UInt32 { 1 }
    /// Held, and perhaps waited for.
    private static var contended: UInt32 { 2 }
    /// How often to look again before sleeping: what is guarded is held for less than a sleep costs.
    private static var patience: Int { 40 }

    // Cells (of Synchronization, which makes its own lock of them) have addresses: the kernel waits at one, and the other is written
    // through a borrowed lock.
    private let state = _Cell(Atomic<UInt32>(0))
    private let value: _Cell<Value>

    init(_ initial: consuming sending Value) { value = _Cell(initial) }

    /// Not to be entered again by the same thread; `body` must run no foreign code, the deinit of what a closure holds included.
    @inline(__always)
    borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        lock()
        defer { unlock() }
        // By a pointer of its own: else the thread sanitizer takes the access for one to the lock as well.
        let value = unsafe self.value._address
        return try unsafe body(&value.pointee)
    }

    @inline(__always)
    private borrowing func lock() {
        let state = unsafe self.state._address
        let took = unsafe state.pointee.compareExchange(
            expected: Self.free,
            desired: Self.held,
            successOrdering: .acquiring,
            failureOrdering: .relaxed
        ).exchanged
        if !took { unsafe waitFor(state) }
    }

    @inline(__always)
    private borrowing func unlock() {
        let state = unsafe self.state._address
        guard unsafe state.pointee.exchange(Self.free, ordering: .releasing) == Self.contended else { return }
        unsafe run_loop_futex_wake(state, 1)
    }

    /// Sleeps only behind the value `contended`, which makes whoever unlocks wake one.
    @inline(never)
    private borrowing func waitFor(_ state: UnsafeMutablePointer<Atomic<UInt32>>) {
        for _ in 0..<Self.patience {
            let took = unsafe state.pointee.weakCompareExchange(
                expected: Self.free,
                desired: Self.held,
                successOrdering: .acquiring,
                failureOrdering: .relaxed
            ).exchanged
            if took { return }
        }
        while unsafe state.pointee.exchange(Self.contended, ordering: .acquiring) != Self.free {
            _ = unsafe run_loop_futex_wait(state, Self.contended, .max)
        }
    }
}
