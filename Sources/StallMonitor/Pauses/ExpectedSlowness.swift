import Locking
import RunLoopKit
import StallReports

/// The scopes in which a server has said that it will be slow. Any thread opens and closes them; the watchdog reads.
final class ExpectedSlowness: Sendable {
    let kind: PauseKind
    private let state = ForkSafeMutex(State())
    private let count: @Sendable (PauseKind, Duration) -> Void
    /// A fork's child inherits the lock as it was, with nobody there to release it.
    private let generation = ForkGeneration.current

    private struct State {
        var time = CoveredTime()
        /// What was counted of it.
        var summed = Duration.zero
    }

    /// - Parameter count: told of the time that a scope has added, when it closes. Called on the thread that closes it.
    init(kind: PauseKind, count: @escaping @Sendable (PauseKind, Duration) -> Void) {
        (self.kind, self.count) = (kind, count)
    }

    /// Opens a scope that covers `limit` from now on at most. Nil in a fork's child, where nobody looks.
    func open(for limit: Duration) -> UInt64? {
        guard generation.isCurrent else { return nil }
        return state.withLock { state in
            let now = MonotonicInstant.now
            return state.time.open(at: now, until: now + max(.zero, limit))
        }
    }

    func close(_ scope: UInt64?) {
        guard let scope, generation.isCurrent else { return }
        let added = state.withLock { state in
            let now = MonotonicInstant.now
            state.time.close(scope, at: now)
            let total = state.time.total(until: now)
            defer { state.summed = total }
            return total - state.summed
        }
        count(kind, added)
    }

    /// How long a scope was open so far. Nil if a thread is opening or closing one at this moment: it may be the stalled one,
    /// stopped there, and the watchdog waits for nobody.
    func covered(until time: MonotonicInstant) -> Duration? {
        state.withLockIfAvailable { $0.time.total(until: time) }
    }
}
