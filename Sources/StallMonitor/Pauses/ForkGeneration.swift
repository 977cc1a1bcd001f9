import CMonitorShims

/// Tells a fork's child from its parent: the child has none of the monitor's threads, and locks may be held there for ever.
package struct ForkGeneration: Hashable, Sendable {
    private let number: UInt32

    package static var current: ForkGeneration { ForkGeneration(number: monitor_fork_generation()) }

    /// Whether this is still the process it was taken in. Any thread; one load.
    package var isCurrent: Bool { self == .current }
}
