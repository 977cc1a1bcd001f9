import Locking
import Synchronization

/// One mode of one loop: its items, and the state that the loop's turn reads without taking a lock.
///
/// The atomics are written under `contents`' lock and read by the loop's thread without it. A thread that changes the mode and
/// needs a sleeping loop to see the change wakes the loop, which orders the two; otherwise the next turn is early enough.
final class LoopMode: Sendable {
    let name: String
    /// The mode's number in the loop's heartbeat.
    let index: Int
    /// Whether it is the first mode that a loop makes (R5).
    var isDefault: Bool { index == 0 }
    let isCommon = Atomic<Bool>(false)
    /// The union of the observers' activities.
    let observedActivities = Atomic<UInt32>(0)
    /// The number of sources and timers: a mode with any of them is not empty (R9).
    let population = Atomic<Int>(0)
    /// `Stop` bits, for the innermost activation of this mode; see ``EventRunLoop/stop(mode:)``.
    let stopRequests = Atomic<UInt8>(0)
    let hasSignalledSources = Atomic<Bool>(false)
    /// The number of runs that are inside a pass over several of the mode's signalled sources. The loop's thread; relaxed.
    let openPasses = Atomic<Int>(0)
    let hasDescriptors = Atomic<Bool>(false)
    let hasReadyDescriptors = Atomic<Bool>(false)

    /// The fields of `TimerOutlook`.
    private let earliestFire = Atomic<UInt64>(.max)
    private let earliestDeadline = Atomic<UInt64>(.max)
    private let earliestWallFire = Atomic<UInt64>(.max)
    private let earliestWallDeadline = Atomic<UInt64>(.max)

    let contents = ForkSafeMutex(Contents())
    let poller = Poller()

    init(name: String, index: Int) {
        self.name = name
        self.index = index
    }

    struct Contents: Sendable {
        var sources: [ObjectIdentifier: EventSource] = [:]
        /// Sources in the order of their signals. Each is here at most once: its place records that it is queued.
        var signalled: [EventSource] = []
        /// The number of entries of `signalled` that may have left the mode since they were queued.
        var goneSignalled = 0
        /// A second buffer, swapped with `signalled`, so that turns do not allocate.
        var spareSignalled: [EventSource] = []
        var descriptors = DescriptorTable()
        var timers = TimerQueue()
        /// Sorted by order, ties by insertion (R38).
        var observers: [LoopObserver] = []
    }

    /// All items, for the end of the loop.
    var items: [any LoopItem] {
        contents.withLock { contents in
            let sources: [any LoopItem] = Array(contents.sources.values)
            return sources + contents.descriptors.sources + contents.timers.timers + contents.observers
        }
    }
}

extension LoopMode.Contents {
    /// Removes the source, also from the queue. It may be in the queue without its ticket: a pass may have performed what a
    /// nested run had put back.
    ///
    /// - Parameter isValid: False if it will never be performed again: then its entry can stay in the queue until half of the
    ///   queue can be removed at once.
    /// - Returns: The entries removed at once. The queue may have had the last references to them, and their closures hold foreign
    ///   objects, so they must be released outside the locks.
    mutating func remove(_ source: EventSource, isValid: Bool) -> [EventSource] {
        sources[ObjectIdentifier(source)] = nil
        guard !signalled.isEmpty else { return [] }
        if isValid {
            signalled.removeAll { $0 === source }
            return []
        }
        goneSignalled += 1
        guard 2 * goneSignalled > signalled.count else { return [] }
        let gone = signalled.filter { sources[ObjectIdentifier($0)] == nil }
        signalled.removeAll { sources[ObjectIdentifier($0)] == nil }
        goneSignalled = 0
        return gone
    }
}

// MARK: - Signalled sources

extension LoopMode {
    /// Queues a source whose signal has just been set.
    func enqueue(_ source: EventSource) {
        contents.withLock { $0.signalled.append(source) }
        // Releasing: a thread that sees the flag finds the source. Setting it outside the lock is safe: an unneeded pass does
        // no harm.
        hasSignalledSources.store(true, ordering: .releasing)
    }

    /// Takes the queued sources, sorted by order, ties by the time of their signal (R28).
    func takeSignalled() -> [EventSource] {
        // Cleared first: a signal after the swap sets it again.
        hasSignalledSources.store(false, ordering: .sequentiallyConsistent)
        var taken = contents.withLock { contents in
            swap(&contents.signalled, &contents.spareSignalled)
            contents.goneSignalled = 0
            return contents.spareSignalled.isEmpty ? [] : contents.spareSignalled.take()
        }
        if taken.count > 1 {
            // A source that was performed through another mode since then is not in this pass, even if one of its callouts
            // signals it again.
            taken.removeAll { !$0.staysTaken(from: self) }
            LoopMode.sort(&taken)
        }
        return taken
    }

    /// For a run inside an outer run's pass: also takes the sources that the outer pass has taken and not reached yet (R23).
    /// The outer pass skips those that are no longer signalled when it reaches them.
    func takeSignalledInsidePass() -> [EventSource] {
        var taken = takeSignalled()
        let present = contents.withLock { Array($0.sources.values) }
        taken += present.filter(\.isSignalled)
        LoopMode.sort(&taken)
        return taken
    }

    /// Sorts by order, ties by the time of the signal. A source that nested runs have left in two queues is kept once.
    private static func sort(_ sources: inout [EventSource]) {
        sources.sort { ($0.order, $0.signalSequence) < ($1.order, $1.signalSequence) }
        var kept = 1
        for index in sources.indices.dropFirst() where sources[index] !== sources[kept - 1] {
            if kept < index { sources[kept] = sources[index] }
            kept += 1
        }
        if kept < sources.count { sources.removeSubrange(kept...) }
    }

    /// Puts back the sources that a pass did not reach, except those that have left the mode since, and keeps the buffer.
    func putBack(_ rest: ArraySlice<EventSource>) {
        contents.withLock { contents in
            let present = rest.filter { contents.sources[ObjectIdentifier($0)] != nil }
            contents.signalled.insert(contentsOf: present, at: 0)
        }
        hasSignalledSources.store(true, ordering: .releasing)
    }

    /// Returns a buffer for the next pass.
    func recycle(_ buffer: consuming [EventSource]) {
        buffer.removeAll(keepingCapacity: true)
        contents.withLock { contents in
            if contents.spareSignalled.capacity < buffer.capacity { swap(&contents.spareSignalled, &buffer) }
        }
    }
}

// MARK: - Descriptors

extension LoopMode {
    /// Changes the descriptors and the epoll set; returns what `change` returns.
    func withDescriptors<Result: Sendable, Failure: Error>(
        _ change: (inout DescriptorTable, Poller) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try contents.withLock { contents throws(Failure) in
            let result = try change(&contents.descriptors, poller)
            hasDescriptors.store(!contents.descriptors.isEmpty, ordering: .releasing)
            hasReadyDescriptors.store(contents.descriptors.hasReady, ordering: .releasing)
            return result
        }
    }

    /// Adds a descriptor of the loop's own to the epoll set. Returns the errno, or nil.
    func addOwn(_ descriptor: Int32, events: UInt32, token: UInt64) -> Int32? {
        withDescriptors { table, poller -> Int32? in
            let failure = poller.add(descriptor, events: events, token: token)
            if failure == nil { table.noteNew(descriptor) }
            return failure
        }
    }

    /// Keeps only descriptors that are known to be ready. To be called when the kernel is about to be polled.
    func forgetExpected() {
        if hasReadyDescriptors.load(ordering: .acquiring) { withDescriptors { table, _ in table.forgetExpected() } }
    }
}

// MARK: - Timers

extension LoopMode {
    /// The earliest dates, not counting timers in their callout. The four values may be from different moments: a thread that
    /// changes one wakes the loop.
    var timerOutlook: TimerOutlook {
        TimerOutlook(
            fire: earliestFire.load(ordering: .acquiring),
            deadline: earliestDeadline.load(ordering: .acquiring),
            wallFire: earliestWallFire.load(ordering: .acquiring),
            wallDeadline: earliestWallDeadline.load(ordering: .acquiring)
        )
    }

    /// Changes the timers; returns what `change` returns.
    func withTimers<Result: Sendable>(_ change: (inout TimerQueue) -> Result) -> Result {
        contents.withLock { contents in
            let result = change(&contents.timers)
            let outlook = contents.timers.outlook
            // Releasing, see the type's comment.
            earliestFire.store(outlook.fire, ordering: .releasing)
            earliestDeadline.store(outlook.deadline, ordering: .releasing)
            earliestWallFire.store(outlook.wallFire, ordering: .releasing)
            earliestWallDeadline.store(outlook.wallDeadline, ordering: .releasing)
            return result
        }
    }
}

// MARK: - Observers

extension LoopMode {
    /// The current observers. Shares the storage: it is copied only if a thread changes the observers in the meantime.
    var observers: [LoopObserver] { contents.withLock { $0.observers } }

    func withObservers(_ change: (inout [LoopObserver]) -> Void) {
        contents.withLock { contents in
            change(&contents.observers)
            let union = contents.observers.reduce(0) { $0 | $1.activities.rawValue }
            observedActivities.store(union, ordering: .releasing)
        }
    }
}

extension Array {
    /// Moves the storage out and leaves an empty array.
    package mutating func take() -> [Element] {
        var taken: [Element] = []
        swap(&self, &taken)
        return taken
    }
}
