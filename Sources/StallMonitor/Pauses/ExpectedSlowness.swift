import Locking
import RunLoopKit
import StallDetection
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

/// How long at least one of several scopes was open, each until its end or its limit, whichever comes first. Pure.
struct CoveredTime: Sendable {
    private var settled = Duration.zero
    private var settledAt = MonotonicInstant(nanoseconds: 0)
    private var open: [(id: UInt64, limit: MonotonicInstant)] = []
    private var opened: UInt64 = 0

    var isOpen: Bool { !open.isEmpty }

    /// Opens a scope; scopes may overlap in any way.
    mutating func open(at time: MonotonicInstant, until limit: MonotonicInstant) -> UInt64 {
        settle(at: time)
        opened += 1
        open.append((opened, limit))
        return opened
    }

    mutating func close(_ id: UInt64, at time: MonotonicInstant) {
        settle(at: time)
        if let index = open.lastIndex(where: { $0.id == id }) { open.remove(at: index) }
    }

    /// All the time covered until `time`, which must not be before the latest opening or closing.
    func total(until time: MonotonicInstant) -> Duration {
        guard let limit = open.map(\.limit).max() else { return settled }
        return settled + max(.zero, min(time, limit) - settledAt)
    }

    private mutating func settle(at time: MonotonicInstant) {
        settled = total(until: time)
        settledAt = max(settledAt, time)
    }
}

/// What one watched loop's looks are to leave out: each source of such time tells how much there was so far, and this remembers
/// how much of it the previous look knew. Confined to the watchdog's thread.
struct ExcludedTimeMeter {
    private let scopes: [ExpectedSlowness]
    private var seen: [Duration]
    private var missedSeen = Duration.zero
    /// The first look since which some source could not be read. Nil when all have been.
    private var unreadSince: MonotonicInstant?
    /// The latest look.
    private var lastTaken: MonotonicInstant?
    /// What the watchdog has missed between the two latest looks.
    private(set) var lastMissed = Duration.zero

    init(_ scopes: [ExpectedSlowness]) {
        self.scopes = scopes
        seen = scopes.map { _ in .zero }
    }

    /// What the watchdog had missed before the time that now begins is no part of it.
    mutating func ignoreMissed(before missed: Duration) { missedSeen = missed }

    /// What has come since the previous look. Where two sources cover the same moment it is counted twice: that a stall is told a
    /// tick later does less harm than one that is none.
    mutating func take(at time: MonotonicInstant, missed: Duration, because reason: PauseKind) -> ExcludedTime? {
        var excluded = ExcludedTime(length: missed - missedSeen, reason: reason)
        (lastMissed, missedSeen) = (excluded.length, missed)
        excluded.since = unreadSince
        let before = lastTaken
        (lastTaken, unreadSince) = (time, nil)
        for index in scopes.indices {
            // What cannot be told now is told at the next look.
            guard let covered = scopes[index].covered(until: time) else {
                unreadSince = excluded.since ?? before
                continue
            }
            if covered > seen[index] {
                excluded.length += covered - seen[index]
                excluded.reason = scopes[index].kind
            }
            seen[index] = covered
        }
        return excluded.length > .zero ? excluded : nil
    }
}
