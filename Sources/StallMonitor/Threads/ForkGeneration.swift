import CRunLoopShims
import Locking

/// Distinguishes a fork's child from its parent. The child has none of the monitor's threads, and locks may be held there
/// forever.
package struct ForkGeneration: Hashable, Sendable {
    private let number: UInt32

    package static var current: ForkGeneration { ForkGeneration(number: run_loop_generation()) }

    /// Whether this is still the process in which it was taken. Any thread; one load.
    package var isCurrent: Bool { self == .current }
}

/// A value that exists once per process. A fork's child gets its own, because it does not have the threads that the parent's
/// value uses.
package final class PerProcess<Value: Sendable>: Sendable {
    private let first: Value
    private let generation = ForkGeneration.current
    /// That of a fork's child. The process that made this object never takes the lock, so no child finds it held.
    private let latest = ForkSafeMutex<(generation: ForkGeneration, value: Value)?>(nil)
    private let make: @Sendable () -> Value

    /// - Parameter make: Called now, and again in a fork's child on first use.
    package init(_ make: @escaping @Sendable () -> Value) {
        self.make = make
        first = make()
    }

    /// The value of the present process. Any thread.
    package var current: Value {
        if generation.isCurrent { return first }
        return latest.withLock { latest in
            if let latest, latest.generation.isCurrent { return latest.value }
            let value = make()
            latest = (generation: .current, value: value)
            return value
        }
    }
}
