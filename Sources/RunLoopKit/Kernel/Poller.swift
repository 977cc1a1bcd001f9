import CRunLoopShims
import Glibc
import Locking
import Synchronization

/// One mode's epoll set. It contains the loop's wake descriptor, on main the main queue's eventfd, and the mode's descriptors.
/// It is created when the mode first waits or gets a descriptor.
///
/// Opening, closing and changing happen under the mode's lock. Only the loop's thread waits, and waiting takes no lock; if it finds
/// there that the set is lost, it gives the set up without the lock.
///
/// A set is abandoned, and not closed, if its number is no longer its own: the program has closed it, or this process was
/// forked and the set is its parent's. The mode then makes a new one. (If another library's epoll set has been given the
/// number, this is noticed at the first event or change; the events that one wait has harvested are lost to that library.)
final class Poller: Sendable {
    /// Tokens carried by events of the set's own members; descriptors' tokens are lower numbers.
    static let wakeToken = RUN_LOOP_WAKE_TOKEN
    static let mainQueueToken = UInt64.max - 1
    static let clockToken = UInt64.max - 2

    /// The events of one wait; valid for the duration of the call that receives it.
    @safe struct Events: ~Copyable {
        fileprivate let harvested: UnsafeBufferPointer<epoll_event>
        /// The kernel may have more, those of the main queue among them.
        let isFull: Bool

        var indices: Range<Int> { unsafe harvested.indices }

        subscript(index: Int) -> (token: UInt64, events: UInt32) {
            // Checked here: the buffer's own subscript is not checked in release builds.
            precondition(indices.contains(index))
            return unsafe (harvested[index].data.u64, harvested[index].events)
        }
    }

    /// The number of events taken by one wait. The lower one is used as long as it suffices, because it fits on the stack.
    /// Events that are left over stay at the head of the kernel's list.
    private static let capacities = (usual: min(64, roomOnStack / bytesPerEvent), greatest: 1024)
    /// Up to 1,024 bytes are allocated on the stack. The words of a `PortWait` come before the events.
    private static let roomOnStack = 1024 - bytesBeforeEvents
    private static let bytesBeforeEvents = PortWait.count * MemoryLayout<UInt32>.stride
    private static let bytesPerEvent = unsafe MemoryLayout<epoll_event>.stride
    /// A loop with work at hand polls the kernel at the latest after this number of turns, or in the first turn that begins
    /// after this duration. This bounds how long the main queue and the descriptors wait for a loop that is busy with its own
    /// work.
    static let longestWithoutAsking = Duration.microseconds(50)
    static let turnsWithoutAsking = Atomic<Int>(8)
    private static let none = UInt64.max

    /// The generation that made the set in the upper 32 bits, and its descriptor in the lower.
    private let epoll = Atomic<UInt64>(Poller.none)
    /// The number of the wake descriptor when it was added to the set.
    private let wakeDescriptor = Atomic<Int32>(-1)
    /// The value of `WakeUp.losses` when the set was last known to be valid. The loop's thread.
    private let lossesSeen = Atomic<UInt32>(0)
    /// The number of the latest harvest, to distinguish fresh events from remembered ones. The loop's thread.
    private let harvests = Atomic<UInt64>(0)
    /// The number of turns since the kernel was last polled, and the time of that poll. The loop's thread.
    private let turnsSinceAsked = Atomic<Int>(0)
    private let timeAsked = Atomic<UInt64>(0)
    /// Whether the main queue's eventfd is in the set. The loop's thread.
    let watchesMainQueue = Atomic<Bool>(false)
    /// Whether the wall clock's descriptor is in the set. The loop's thread.
    let watchesClock = Atomic<Bool>(false)

    /// The loop's thread.
    private let capacity = Atomic<Int>(Poller.capacities.usual)

    deinit { close() }

    var isOpen: Bool { Poller.isOpen(epoll.load(ordering: .acquiring)) }
    var harvest: UInt64 { harvests.load(ordering: .relaxed) }

    /// The place in which the loop sleeps when it waits for this set.
    var place: WakeUp.Place { place(ofSet: descriptor) }

    private func place(ofSet number: Int32) -> WakeUp.Place {
        WakeUp.Place(set: number, wakeDescriptor: wakeDescriptor.load(ordering: .relaxed))
    }

    private var descriptor: Int32 { Poller.descriptor(epoll.load(ordering: .relaxed)) }

    private static func descriptor(_ word: UInt64) -> Int32 { Int32(truncatingIfNeeded: word) }

    private static func isOpen(_ word: UInt64) -> Bool { word >> 32 == run_loop_generation() && word != none }

    /// Makes the set if there is none yet.
    func open(for wakeUp: WakeUp) throws(RunLoopError) {
        guard !isOpen else { return }
        close()
        let wakeDescriptor = try wakeUp.descriptor()
        let made = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard made >= 0 else { throw RunLoopError(.outOfResources, errno: errno) }
        let failure = run_loop_add_wake_descriptor(made, wakeDescriptor)
        guard failure == 0 else {
            Glibc.close(made)
            throw RunLoopError(.outOfResources, errno: failure)
        }
        SetRegistry.enter(made, of: self, wakenBy: wakeUp)
        self.wakeDescriptor.store(wakeDescriptor, ordering: .relaxed)
        epoll.store(UInt64(run_loop_generation()) << 32 | UInt64(made), ordering: .releasing)
    }

    /// Closes the set if it is still its own, otherwise abandons it.
    func close() {
        let former = epoll.exchange(Poller.none, ordering: .acquiringAndReleasing)
        // Of the set that was just taken out: another thread may have opened a new one in the meantime.
        let place = place(ofSet: Poller.descriptor(former))
        watchesMainQueue.store(false, ordering: .relaxed)
        watchesClock.store(false, ordering: .relaxed)
        guard former != Poller.none, let wakeUp = SetRegistry.leave(place.set, of: self) else { return }
        guard Poller.isOpen(former) else { return }  // the parent's set
        // The registry knows this library's sets only; the kernel knows about the others.
        if place.signal() {
            Glibc.close(place.set)
        } else {
            LoopWarning.descriptorsClosed.printOnce()
            wakeUp.loseDescriptors()
        }
    }

    /// Abandons the set if descriptors were lost and it is one of them. The loop's thread.
    func giveUpIfLost(_ wakeUp: WakeUp) {
        let losses = wakeUp.losses
        guard lossesSeen.exchange(losses, ordering: .relaxed) != losses, isOpen else { return }
        if !isIntact { close() }
    }

    private var isIntact: Bool { SetRegistry.has(descriptor, of: self) && place.signal() }
}

// MARK: - Members

extension Poller {
    /// Returns the errno, or nil.
    func add(_ fd: Int32, events: UInt32, token: UInt64) -> Int32? {
        if let failure = control(EPOLL_CTL_ADD, fd, events: events, token: token) { return failure }
        guard fd == wakeDescriptor.load(ordering: .relaxed) else { return nil }
        // A program has closed the wake descriptor, and this file has got its number. To signal it would change what was just added.
        _ = remove(fd)
        close()
        return EBADF
    }

    /// Returns the errno, or nil. EBADF and ENOENT mean that `fd` was closed, and perhaps reopened, since it was added.
    func refresh(_ fd: Int32, events: UInt32, token: UInt64) -> Int32? {
        control(EPOLL_CTL_MOD, fd, events: events, token: token)
    }

    /// Returns the errno, or nil.
    func remove(_ fd: Int32) -> Int32? { control(EPOLL_CTL_DEL, fd, events: 0, token: 0) }

    /// A set that is not open, or is found lost now, has no members: adding fails with EBADF, and the other operations
    /// succeed.
    private func control(_ operation: Int32, _ fd: Int32, events: UInt32, token: UInt64) -> Int32? {
        let failureWithoutSet = operation == EPOLL_CTL_ADD ? EBADF : nil
        guard isOpen else { return failureWithoutSet }
        var event = unsafe epoll_event(events: events, data: epoll_data_t(u64: token))
        guard unsafe epoll_ctl(descriptor, operation, fd, &event) != 0 else { return nil }
        let failure = errno
        if failure == ENOMEM || failure == ENOSPC || failure == EEXIST || isIntact { return failure }
        close()
        return failureWithoutSet
    }
}

// MARK: - Waiting

extension Poller {
    /// Waits, without limit if there is no timeout, and passes the events to `receive`. The loop's thread.
    ///
    /// - Parameter wait: What the thread waits for in this mode, if it waits for a port.
    func wait(for timeout: Duration?, awaiting wait: (PortWait, mode: Int)?, _ receive: (borrowing Events) -> Void) {
        let fd = descriptor
        harvests.add(1, ordering: .relaxed)
        let capacity = capacity.load(ordering: .relaxed)
        unsafe Self.withMemory(for: capacity) { words, events in
            if let wait { unsafe wait.0.write(to: words, mode: wait.mode) } else { unsafe PortWait.clear(words) }
            let count = unsafe event_run_loop_wait(fd, events, Int32(capacity), timeout?.nanoseconds ?? -1)
            // EINTR: a signal interrupted the wait and there are no events. Any other error means that the number is no
            // longer an epoll set.
            if count < 0, count != -EINTR { close() }
            notePolled()
            let isFull = count == capacity
            self.capacity.store(isFull ? Poller.capacities.greatest : Poller.capacities.usual, ordering: .relaxed)
            let harvested = unsafe UnsafeBufferPointer(start: events, count: max(0, Int(count)))
            unsafe receive(Events(harvested: harvested, isFull: isFull))
        }
    }

    /// Memory for one wait: the words of a `PortWait`, and behind them the events. On the stack if the capacity is the usual one.
    @inline(__always)
    private static func withMemory(
        for capacity: Int,
        _ body: (UnsafeMutablePointer<UInt32>, UnsafeMutablePointer<epoll_event>) -> Void
    ) {
        let size = bytesBeforeEvents + capacity * bytesPerEvent
        unsafe withUnsafeTemporaryAllocation(byteCount: size, alignment: MemoryLayout<UInt64>.alignment) { bytes in
            guard let start = bytes.baseAddress else { return }
            let words = unsafe start.bindMemory(to: UInt32.self, capacity: PortWait.count)
            let events = unsafe (start + bytesBeforeEvents).bindMemory(to: epoll_event.self, capacity: capacity)
            unsafe body(words, events)
        }
    }

    func notePolled() {
        turnsSinceAsked.store(0, ordering: .relaxed)
        timeAsked.store(MonotonicInstant.now.nanoseconds, ordering: .relaxed)
    }

    /// Counts a turn with work at hand, which need not poll the kernel; returns whether it must do so anyway. Once in each such
    /// turn. The loop's thread.
    func countBusyTurn() -> Bool {
        let turns = turnsSinceAsked.load(ordering: .relaxed) + 1
        turnsSinceAsked.store(turns, ordering: .relaxed)
        if turns >= Poller.turnsWithoutAsking.load(ordering: .relaxed) { return true }
        let last = MonotonicInstant(nanoseconds: timeAsked.load(ordering: .relaxed))
        return last.duration(to: .now) >= Poller.longestWithoutAsking
    }
}

/// The registry of which epoll set of this library has which descriptor number.
///
/// If a program closes descriptors that are not its own, several loops make new ones at once, and one of them can get the
/// number that another still uses for its set. The loop that gets a number notifies the former owner.
enum SetRegistry {
    private struct Owner: Sendable {
        let poller: ObjectIdentifier
        let wakeUp: WakeUp
    }

    private static let owners = ForkSafeMutex<[Int32: Owner]>([:])

    /// Records that the kernel has just given the number to a new set of `poller`.
    static func enter(_ number: Int32, of poller: Poller, wakenBy wakeUp: WakeUp) {
        let owner = Owner(poller: ObjectIdentifier(poller), wakeUp: wakeUp)
        let former = owners.withLock { $0.updateValue(owner, forKey: number) }
        former?.wakeUp.loseDescriptors()
    }

    /// Whether the number is still that set's.
    static func has(_ number: Int32, of poller: Poller) -> Bool {
        owners.withLock { $0[number]?.poller == ObjectIdentifier(poller) }
    }

    /// Removes the set. Nil if its number was already given to another set, otherwise the `WakeUp` of its loop.
    static func leave(_ number: Int32, of poller: Poller) -> WakeUp? {
        owners.withLock { owners in
            owners[number]?.poller == ObjectIdentifier(poller) ? owners.removeValue(forKey: number)?.wakeUp : nil
        }
    }
}
