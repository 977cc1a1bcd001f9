internal import Synchronization

/// One mode of one loop: its items, and what the loop's turn must know about them without taking a lock.
///
/// The atomics are written under `contents`' lock and read by the loop's thread without it. Whoever changes the mode from another
/// thread and wants a sleeping loop to see it wakes the loop, which orders the two; else the next turn is early enough.
final class LoopMode: Sendable {
    let name: String
    /// The mode's number in the loop's heartbeat.
    let index: Int
    /// The first that a loop makes (R5).
    var isDefault: Bool { index == 0 }
    let isCommon = Atomic<Bool>(false)
    /// The union of the observers' activities.
    let observedActivities = Atomic<UInt32>(0)
    /// How many sources and timers there are: what keeps a mode from being empty (R9).
    let population = Atomic<Int>(0)
    let hasSignalledSources = Atomic<Bool>(false)
    let hasDescriptors = Atomic<Bool>(false)
    let hasReadyDescriptors = Atomic<Bool>(false)
    /// How many passes over several signalled sources are on the stack, and how often nested runs have taken one of these over. Written
    /// by the loop's thread; relaxed.
    private let openPasses = Atomic<Int>(0)
    private let takeOvers = Atomic<Int>(0)

    private let earliestFireNanoseconds = Atomic<UInt64>(.max)

    let contents = Guarded(Contents())
    let poller = Poller()

    init(name: String, index: Int) {
        self.name = name
        self.index = index
    }

    struct Contents: Sendable {
        var sources: [ObjectIdentifier: EventSource] = [:]
        /// Sources in the order of their signals. Each is here at most once: its place knows that it is queued.
        var signalled: [EventSource] = []
        /// A second buffer, to be swapped with `signalled`, so that turns do not allocate.
        var spareSignalled: [EventSource] = []
        var descriptors = DescriptorTable()
        var timers = TimerHeap()
        var spareDue: [EventTimer] = []
        /// Sorted by order, ties by insertion (R38).
        var observers: [LoopObserver] = []
    }

    /// Every item, for the end of the loop.
    var items: [any LoopItem] {
        contents.withLock { contents in
            let sources: [any LoopItem] = Array(contents.sources.values)
            return sources + contents.descriptors.sources + contents.timers.timers + contents.observers
        }
    }
}

// MARK: - Signalled sources

extension LoopMode {
    /// Queues a source whose signal has just been set.
    func enqueue(_ source: EventSource) {
        contents.withLock { $0.signalled.append(source) }
        // Releasing: who sees the flag finds the source. Setting it outside the lock is fine, a pass too many costs nothing.
        hasSignalledSources.store(true, ordering: .releasing)
    }

    /// Takes the queued sources, sorted by order, ties by the time of their signal (R28).
    func takeSignalled() -> [EventSource] {
        // Cleared first: a signal that comes after the swap sets it again.
        hasSignalledSources.store(false, ordering: .sequentiallyConsistent)
        var taken = contents.withLock { contents in
            swap(&contents.signalled, &contents.spareSignalled)
            return contents.spareSignalled.isEmpty ? [] : contents.spareSignalled.take()
        }
        if taken.count > 1 { taken.sort { ($0.order, $0.signalSequence) < ($1.order, $1.signalSequence) } }
        return taken
    }

    /// A pass over several sources begins. Returns what ``wasTakenOver(since:)`` asks for.
    func openPass() -> Int {
        openPasses.add(1, ordering: .relaxed)
        return takeOvers.load(ordering: .relaxed)
    }

    func closePass() {
        let isLast = openPasses.subtract(1, ordering: .relaxed).newValue == 0
        if isLast { takeOvers.store(0, ordering: .relaxed) }
    }

    /// Whether a run that a source of the pass has nested has queued the rest: what is left is in the queue then, or performed.
    func wasTakenOver(since openPass: Int) -> Bool { takeOvers.load(ordering: .relaxed) != openPass }

    /// Queues again what the passes further up the stack have not come to: a nested run performs it as well (R23). They go on
    /// with what it leaves.
    func takeOverPass() {
        guard openPasses.load(ordering: .relaxed) > 0 else { return }
        takeOvers.add(1, ordering: .relaxed)
        for source in contents.withLock({ Array($0.sources.values) }) { source.enqueueIfTaken(from: self) }
    }

    /// Queues a source that stands in a pass, unless it stands in the queue as well.
    func enqueueAgain(_ source: EventSource) {
        contents.withLock { contents in
            guard !contents.signalled.contains(where: { $0 === source }) else { return }
            contents.signalled.append(source)
        }
        hasSignalledSources.store(true, ordering: .releasing)
    }

    /// Takes a source out of the queue where it stands besides a pass.
    func dequeueIfTakenOver(_ source: EventSource) {
        guard takeOvers.load(ordering: .relaxed) > 0 else { return }
        contents.withLock { $0.signalled.removeAll { $0 === source } }
    }

    /// Puts back what a pass did not come to, unless it has left the mode since, and keeps the buffer.
    func putBack(_ rest: ArraySlice<EventSource>) {
        contents.withLock { contents in
            let present = rest.filter { contents.sources[ObjectIdentifier($0)] != nil }
            contents.signalled.insert(contentsOf: present, at: 0)
        }
        hasSignalledSources.store(true, ordering: .releasing)
    }

    /// Gives a buffer back for the next pass.
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
}

// MARK: - Timers

extension LoopMode {
    /// When the earliest timer fires, those in their callout left out; `distantFuture` if there is none.
    var earliestFire: MonotonicInstant {
        MonotonicInstant(nanoseconds: earliestFireNanoseconds.load(ordering: .acquiring))
    }

    /// Changes the timers; returns what `change` returns.
    func withTimers<Result: Sendable>(_ change: (inout TimerHeap) -> Result) -> Result {
        contents.withLock { contents in
            let result = change(&contents.timers)
            // Releasing, see the type's comment.
            earliestFireNanoseconds.store(contents.timers.earliest.nanoseconds, ordering: .releasing)
            return result
        }
    }

    /// The timers due at `now` in firing order: a snapshot (R43).
    func takeDueTimers(at now: MonotonicInstant) -> [EventTimer] {
        contents.withLock { contents in
            var due = contents.spareDue.take()
            contents.timers.collectDue(at: now, into: &due)
            return due
        }
    }

    /// Gives a buffer back for the next pass.
    func recycle(_ buffer: consuming [EventTimer]) {
        buffer.removeAll(keepingCapacity: true)
        contents.withLock { contents in
            if contents.spareDue.capacity < buffer.capacity { swap(&contents.spareDue, &buffer) }
        }
    }
}

// MARK: - Observers

extension LoopMode {
    /// The observers as they are now. Shares the storage: no copy is made unless somebody changes them meanwhile.
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
    mutating func take() -> [Element] {
        var taken: [Element] = []
        swap(&self, &taken)
        return taken
    }
}
