import Locking
import Synchronization

extension EventRunLoop {
    /// Runs `body` once, on the loop's thread, when the loop is about to sleep or its run ends: once for all the changes of a
    /// turn, as user interfaces lay out and commit, and pools are drained. Any thread; not in a signal handler.
    ///
    /// Until `body` has begun, another call with the same key replaces `body`, which keeps its position. A call made while such
    /// work is being done takes effect in the next turn, for which the loop stays awake. Work does not keep a mode from being
    /// empty, and is not done for a run that is refused because the mode is empty; if the loop's thread ends first, the work is
    /// released.
    ///
    /// A loop that always has a signalled source or a request never reaches its rest: see `limit`.
    ///
    /// - Parameters:
    ///   - key: Names the work in this loop: a string, an `ObjectIdentifier`. Its `==` and `hash(into:)` are called under a lock, so
    ///     they must not call the loop.
    ///   - order: Among the loop's observers, lower first (R38). `Int.min` is before, `Int.max` after everything else. Work of
    ///     one order is done in the order of the calls. Use few orders: each order ever used keeps an observer on the loop.
    ///   - activities: When the work is done; an empty set traps. `beforeWaiting` alone makes it work for an idle loop: a run
    ///     that ends takes no time for it.
    ///   - mode: A mode, or all common ones.
    ///   - limit: If the loop has not done the work after this time, it is done at the beginning of a turn. Nil for no limit. If
    ///     the call replaces a body and both calls have a limit, the earlier one holds.
    public func performBeforeWaiting(
        _ key: some Hashable & Sendable,
        order: Int = 0,
        at activities: Activity = [.beforeWaiting, .exit],
        in mode: Mode = .common,
        atLatest limit: Duration? = nil,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) {
        let canCome = !activities.isDisjoint(with: .all)
        require(canCome, "Work before a sleep names at least one activity.", file: file, line: line)
        if isOfParent { return LoopWarning.loopOfParent.printOnce() }
        let deadline = MonotonicInstant.after(limit)
        let lane = BeforeWaitingWork.Lane(order: order, activities: activities, mode: mode, isLimited: limit != nil)
        switch beforeWaiting.put(body, for: BeforeWaitingWork.Key(base: key), in: lane, deadline: deadline) {
        case .refused: return LoopWarning.loopEnded.printOnce()
        case .replaced: return
        case .added: break
        case .addedToNewLane: add(beforeWaiting.observer(of: lane), to: mode)
        }
        // On its own thread the loop reaches the work without a wake-up, unless it, or an outer run, may just have passed that
        // point.
        if isOnOwnThread, heartbeat.pulse.phase != .beforeWaiting, !outerWaitsAhead.load(ordering: .relaxed) { return }
        wake.post()
    }

    /// Frees the work of that key without doing it, if it has not begun; returns whether it had not begun. Any thread.
    @discardableResult
    public func cancelBeforeWaiting(_ key: some Hashable & Sendable) -> Bool {
        beforeWaiting.remove(BeforeWaitingWork.Key(base: key))
    }
}

/// The work that a loop does once before it waits. One observer of the loop does all work of one lane.
///
/// What is taken out of the state is released outside the lock: the deinit of a key, or of what a body holds, is foreign code.
final class BeforeWaitingWork: Sendable {
    struct Lane: Hashable, Sendable {
        let order: Int
        let activities: EventRunLoop.Activity
        let mode: EventRunLoop.Mode
        let isLimited: Bool
    }

    struct Key: Hashable, Sendable {
        let base: any Hashable & Sendable

        static func == (left: Key, right: Key) -> Bool { AnyHashable(left.base) == AnyHashable(right.base) }
        // Not the base's own hash: numbers of different types can be equal here, and have different hashes.
        func hash(into hasher: inout Hasher) { AnyHashable(base).hash(into: &hasher) }
    }

    enum Reception {
        case refused
        case replaced
        case added
        case addedToNewLane
    }

    private struct Work: Sendable {
        /// The object that is the key in `works`, so that whoever takes the work out has the last reference to it.
        let key: Key
        let lane: Lane
        /// Its number in the queue; a queue entry with another number is obsolete.
        let number: UInt64
        var body: @Sendable () -> Void
    }

    private struct Queue: Sendable {
        var keys: [(key: Key, number: UInt64)] = []
        var begin = 0
        /// The earliest deadline of the requests that were made since the lane was last processed.
        var deadline = MonotonicInstant.distantFuture

        mutating func append(_ key: Key, number: UInt64, deadline: MonotonicInstant) {
            keys.append((key, number))
            limit(by: deadline)
        }

        mutating func limit(by deadline: MonotonicInstant) { self.deadline = min(self.deadline, deadline) }

        /// If most entries are obsolete, because their work was cancelled while the mode did not run: removes these, and returns
        /// their keys.
        mutating func sweep(_ works: [Key: Work]) -> [Key] {
            guard keys.count > max(32, 2 * works.count) else { return [] }
            let obsolete = keys.filter { works[$0.key]?.number != $0.number }.map(\.key)
            keys.removeAll { works[$0.key]?.number != $0.number }
            begin = 0
            return obsolete
        }
    }

    private struct State: Sendable {
        var works: [Key: Work] = [:]
        var queues: [Lane: Queue] = [:]
        var nextNumber: UInt64 = 0
        var isClosed = false
    }

    private let state = ForkSafeMutex(State())

    var count: Int { state.withLock { $0.works.count } }

    func put(
        _ body: @escaping @Sendable () -> Void,
        for key: Key,
        in lane: Lane,
        deadline: MonotonicInstant
    ) -> Reception {
        let (reception, former, obsolete): (Reception, Work?, [Key]) = state.withLock { state in
            guard !state.isClosed else { return (.refused, nil, []) }
            let former = state.works[key]
            if former?.lane == lane {
                state.works[key]?.body = body
                state.queues[lane]?.limit(by: deadline)
                return (.replaced, former, [])
            }
            // Removed first: otherwise the dictionary would keep the former key.
            state.works[key] = nil
            state.works[key] = Work(key: key, lane: lane, number: state.nextNumber, body: body)
            let isNew = state.queues[lane] == nil
            state.queues[lane, default: Queue()].append(key, number: state.nextNumber, deadline: deadline)
            let obsolete = state.queues[lane]?.sweep(state.works) ?? []
            state.nextNumber += 1
            return (isNew ? .addedToNewLane : .added, former, obsolete)
        }
        _ = consume former
        _ = consume obsolete
        return reception
    }

    func remove(_ key: Key) -> Bool {
        let work = state.withLock { $0.works.removeValue(forKey: key) }
        return work != nil
    }

    func observer(of lane: Lane) -> LoopObserver {
        let activities = lane.isLimited ? lane.activities.union(.beforeTimers) : lane.activities
        return LoopObserver(activities: activities, order: lane.order) { [self] _, activity in
            if lane.activities.contains(activity) || isLate(lane) { doAll(of: lane) }
        }
    }

    private func isLate(_ lane: Lane) -> Bool {
        state.withLock { $0.queues[lane]?.deadline.hasPassed ?? false }
    }

    /// Work that is added during the processing is left for the next turn.
    private func doAll(of lane: Lane) {
        let end = state.withLock { state in
            state.queues[lane]?.deadline = .distantFuture
            return state.nextNumber
        }
        while let body = takeFirst(of: lane, before: end) { body() }
    }

    private func takeFirst(of lane: Lane, before end: UInt64) -> (@Sendable () -> Void)? {
        let (work, passed): (Work?, [Key]) = state.withLock { state in
            guard var queue = state.queues.removeValue(forKey: lane) else { return (nil, []) }
            defer { state.queues[lane] = queue }
            while queue.begin < queue.keys.count, queue.keys[queue.begin].number < end {
                let (key, number) = queue.keys[queue.begin]
                queue.begin += 1
                guard state.works[key]?.number == number else { continue }
                return (state.works.removeValue(forKey: key), [])
            }
            let passed = queue.keys[..<queue.begin].map(\.key)
            queue.keys.removeFirst(queue.begin)
            queue.begin = 0
            return (nil, passed)
        }
        _ = consume passed
        return work?.body
    }

    /// The loop has ended: frees the queued work, and accepts no more.
    func close() {
        let former = state.withLock { state in
            let former = state
            state = State(isClosed: true)
            return former
        }
        _ = consume former
    }
}
