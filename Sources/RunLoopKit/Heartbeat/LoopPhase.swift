/// Where in its turn a loop is. Each value but ``idle`` and ``waiting`` has the activity that observers see (R14).
public enum LoopPhase: UInt8, Sendable, Hashable, CaseIterable {
    /// No activation is running.
    case idle
    case entry
    case beforeTimers
    case beforeSources
    /// The observers of `beforeWaiting` run: still work.
    case beforeWaiting
    /// Inside the wait itself, and nowhere else.
    case waiting
    case afterWaiting
    case exit

    /// Whether a loop in this phase owes nobody anything: it sleeps, or it is not running at all.
    @inlinable public var isAtRest: Bool { self == .idle || self == .waiting }
}

extension LoopPhase {
    /// The activity that observers of this phase see; nil for ``idle`` and ``waiting``, which nobody can observe from inside.
    public var activity: EventRunLoop.Activity? {
        switch self {
        case .idle, .waiting: nil
        case .entry: .entry
        case .beforeTimers: .beforeTimers
        case .beforeSources: .beforeSources
        case .beforeWaiting: .beforeWaiting
        case .afterWaiting: .afterWaiting
        case .exit: .exit
        }
    }
}
