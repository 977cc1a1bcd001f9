import Locking
import RunLoopKit
import StallDetection
import StallReports

// What a server announces as slow, and how that time is left out.

extension StallMonitor {
    /// Announces that the work may be slow. For at most `limit`, time in it counts towards no stall of any loop.
    ///
    ///     try monitor.expectSlow(for: .seconds(5)) { try migrate() }
    ///
    /// Prefer `Watch.expectSlow(for:_:)`, which keeps watching the other loops. Scopes may be nested and overlap, on any threads;
    /// time that several cover counts once. A stall that continues beyond the limit, or begins outside, is reported when its
    /// uncovered time reaches the threshold; its `duration_ns` leaves out the covered time, which is in `excluded_ns`. The run
    /// record has the sum of the covered time, and counts each stall that was not reported because of it as `dismissed`.
    ///
    /// Any thread; takes locks briefly and reads the clock twice. Without a running monitor it only runs the work.
    ///
    /// - Parameters:
    ///   - limit: Counted from now on; nothing is covered after it. Not negative. Time in which the whole process is stopped does not
    ///     use it up.
    ///   - work: Runs at once, on the calling thread.
    public func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let scope = SlowScope(engine?.slowness, for: limit)
        defer { scope.close() }
        return try work()
    }

    /// The same for work that awaits. It runs where the caller runs. Time in which it is suspended counts towards the limit, too.
    public nonisolated(nonsending) func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: nonisolated(nonsending) () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        let scope = SlowScope(engine?.slowness, for: limit)
        defer { scope.close() }
        return try await work()
    }
}

extension StallMonitor.Watch {
    /// Announces that the work may be slow. For at most `limit`, time in it counts towards no stall of this loop. See
    /// `StallMonitor.expectSlow(for:_:)`.
    public func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let scope = SlowScope(slowness, for: limit)
        defer { scope.close() }
        return try work()
    }

    /// The same for work that awaits. It runs where the caller runs.
    public nonisolated(nonsending) func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: nonisolated(nonsending) () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        let scope = SlowScope(slowness, for: limit)
        defer { scope.close() }
        return try await work()
    }
}

/// One open scope.
private struct SlowScope {
    private let slowness: ExpectedSlowness?
    private let number: UInt64?

    init(_ slowness: ExpectedSlowness?, for limit: Duration) {
        self.slowness = slowness
        number = slowness?.open(for: limit)
    }

    func close() { slowness?.close(number) }
}

/// The scopes in which a server has said that it will be slow. Any thread opens and closes them; the watchdog reads them.
final class ExpectedSlowness: Sendable {
    let kind: PauseKind
    private let state = ForkSafeMutex(State())
    private let count: @Sendable (PauseKind, Duration) -> Void
    /// A fork's child inherits the lock in its state at the fork, without the thread that would release it.
    private let generation = ForkGeneration.current

    private struct State {
        var time = CoveredTime()
        /// How much of the covered time was passed to `count`.
        var summed = Duration.zero
    }

    /// - Parameter count: Called with the time that a scope has added, when it closes, on the thread that closes it.
    init(kind: PauseKind, count: @escaping @Sendable (PauseKind, Duration) -> Void) {
        (self.kind, self.count) = (kind, count)
    }

    /// Opens a scope that covers at most `limit` from now on. Nil in a fork's child, which has no watchdog.
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

    /// Makes a stop of the process, which the watchdog has found just now, use up no scope's limit. A scope that another thread opens or
    /// closes just now is left as it is: the watchdog must not wait for it.
    func extend(by stop: Duration) {
        _ = state.withLockIfAvailable { $0.time.extend(by: stop, until: .now) }
    }

    /// How long a scope has been open so far. Nil while another thread opens or closes one: that may be the stalled thread,
    /// stopped at this point, and the watchdog must not wait for it.
    func covered(until time: MonotonicInstant) -> Duration? {
        state.withLockIfAvailable { $0.time.total(until: time) }
    }

    /// How long a scope had been open before `time`, at least. Nil as above.
    func leastCovered(before time: MonotonicInstant) -> Duration? {
        state.withLockIfAvailable { $0.time.least(before: time) }
    }
}

/// How long at least one of several scopes was open, each until its end or its limit, whichever comes first. Pure.
struct CoveredTime: Sendable {
    private var settled = Duration.zero
    private var settledAt = MonotonicInstant(nanoseconds: 0)
    private var open: [(id: UInt64, since: MonotonicInstant, limit: MonotonicInstant)] = []
    private var opened: UInt64 = 0

    /// Opens a scope. Scopes may overlap in any way.
    mutating func open(at time: MonotonicInstant, until limit: MonotonicInstant) -> UInt64 {
        settle(at: time)
        opened += 1
        open.append((opened, time, limit))
        return opened
    }

    mutating func close(_ id: UInt64, at time: MonotonicInstant) {
        settle(at: time)
        if let index = open.lastIndex(where: { $0.id == id }) { open.remove(at: index) }
    }

    /// Moves the limits of the scopes that were open during a stop that ended shortly before `time`.
    mutating func extend(by stop: Duration, until time: MonotonicInstant) {
        // `time` is a little later than the end of the stop, so a scope that was opened just before the stop may seem to have been opened in it.
        // The middle tells it from one that was opened after the stop.
        let (start, middle) = (time.advanced(by: .zero - stop), time.advanced(by: .zero - stop / 2))
        for index in open.indices where open[index].since <= middle && open[index].limit >= start {
            open[index].limit = open[index].limit + stop
        }
    }

    /// All the time covered until `time`, which must not be before the latest opening or closing.
    func total(until time: MonotonicInstant) -> Duration {
        guard let limit = open.map(\.limit).max() else { return settled }
        return settled + max(.zero, min(time, limit) - settledAt)
    }

    /// How much of the time before `time` is covered, at least. Exact unless a scope was opened or closed after that.
    func least(before time: MonotonicInstant) -> Duration {
        total(until: time) - max(.zero, settledAt - time)
    }

    private mutating func settle(at time: MonotonicInstant) {
        settled = total(until: time)
        settledAt = max(settledAt, time)
    }
}

/// Measures the excluded time between the looks at one loop. Each source of excluded time has a running total; this remembers the
/// totals of the previous look. Confined to the watchdog's thread.
struct ExcludedTimeMeter {
    let scopes: [ExpectedSlowness]
    private var seen: [Duration]
    private var missedSeen = Duration.zero
    /// The first look since which some source could not be read. Nil if all have been read.
    private var unreadSince: MonotonicInstant?
    /// The latest look.
    private var lastTaken: MonotonicInstant?
    /// How much time the watchdog missed between the two latest looks.
    private(set) var lastMissed = Duration.zero

    init(_ scopes: [ExpectedSlowness]) {
        self.scopes = scopes
        seen = scopes.map { _ in .zero }
    }

    /// Makes time that the watchdog missed before not count against the time that begins now.
    mutating func ignoreMissed(before missed: Duration) { missedSeen = missed }

    /// Makes time that scopes covered before `time` not count against the time that begins then: nothing was looked at before. A
    /// scope that cannot be read now counts from the previous look on.
    mutating func ignoreCovered(before time: MonotonicInstant) {
        for index in scopes.indices {
            if let covered = scopes[index].leastCovered(before: time) { seen[index] = max(seen[index], covered) }
        }
    }

    /// The excluded time since the previous look. If two sources cover the same moment, it is counted twice: reporting a stall a
    /// tick later does less harm than reporting one that is no stall.
    mutating func take(at time: MonotonicInstant, missed: Duration, because reason: PauseKind) -> ExcludedTime? {
        var excluded = ExcludedTime(length: missed - missedSeen, reason: reason)
        (lastMissed, missedSeen) = (excluded.length, missed)
        excluded.since = unreadSince
        let before = lastTaken
        (lastTaken, unreadSince) = (time, nil)
        for index in scopes.indices {
            // A source that cannot be read now is read at the next look.
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
