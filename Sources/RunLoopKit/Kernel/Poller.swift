internal import CRunLoopShims
internal import Glibc
import Locking
internal import Synchronization

/// One mode's epoll set: the loop's wake descriptor, on main the main queue's eventfd, and the mode's descriptors. Made when the mode first waits
/// or gets a descriptor.
///
/// Opening, closing and changing happen under the mode's lock; waiting is the loop's thread alone and takes none.
///
/// A set is given up, and not closed, if its number is no longer its own: a program has closed it, or this process was forked and the
/// set is its parent's. The mode then makes a new one. (A number that another library's epoll set has got is noticed at the first event
/// or change; what one wait has harvested is lost to it.)
final class Poller: Sendable {
    /// What an event of the set's own members carries; descriptors' tokens are below.
    static let wakeToken = RUN_LOOP_WAKE_TOKEN
    static let mainQueueToken = UInt64.max - 1
    static let clockToken = UInt64.max - 2

    /// What one wait has taken; good for as long as the call that is given it.
    @safe struct Events: ~Copyable {
        fileprivate let harvested: UnsafeBufferPointer<epoll_event>

        var indices: Range<Int> { unsafe harvested.indices }

        subscript(index: Int) -> (token: UInt64, events: UInt32) {
            // Checked here: the buffer's own subscript is not, in release builds.
            precondition(indices.contains(index))
            return unsafe (harvested[index].data.u64, harvested[index].events)
        }
    }

    /// Events taken by one wait: the lower as long as that suffices, because so many find room on the stack. What is left over stays in
    /// the kernel's list, at its head.
    private static let capacities = (usual: 64, greatest: 1024)
    /// A loop with work at hand asks the kernel again at the latest after so many turns, or in the first turn that begins after so much
    /// time: so long at most wait the main queue and the descriptors for a loop that is busy with itself.
    static let longestWithoutAsking = Duration.microseconds(50)
    static let turnsWithoutAsking = Atomic<Int>(8)
    private static let none = UInt64.max

    /// The generation that made the set, and its descriptor below.
    private let epoll = Atomic<UInt64>(Poller.none)
    /// The wake descriptor's descriptor, as it was when it was hung in the set.
    private let wakeDescriptor = Atomic<Int32>(-1)
    /// `WakeUp.losses` when the set was last known to be good. The loop's thread.
    private let lossesSeen = Atomic<UInt32>(0)
    /// Number of the latest harvest, to tell fresh events from remembered ones. The loop's thread.
    private let harvests = Atomic<UInt64>(0)
    /// How often the kernel has not been asked since, and when it was. The loop's thread.
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

    /// Where the loop sleeps when it waits for this set.
    var place: WakeUp.Place {
        WakeUp.Place(set: descriptor, wakeDescriptor: wakeDescriptor.load(ordering: .relaxed))
    }

    private var descriptor: Int32 { Int32(truncatingIfNeeded: epoll.load(ordering: .relaxed)) }

    private static func isOpen(_ word: UInt64) -> Bool { word >> 32 == run_loop_generation() && word != none }

    /// Makes the set, if there is none yet.
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

    /// Closes the set if it is still its own, else gives it up.
    func close() {
        let place = self.place
        let former = epoll.exchange(Poller.none, ordering: .acquiringAndReleasing)
        watchesMainQueue.store(false, ordering: .relaxed)
        watchesClock.store(false, ordering: .relaxed)
        guard former != Poller.none, let wakeUp = SetRegistry.leave(place.set, of: self) else { return }
        guard Poller.isOpen(former) else { return }  // the parent's
        // The registry knows of our own sets only, the kernel knows of the others.
        if place.signal() {
            Glibc.close(place.set)
        } else {
            LoopWarning.descriptorsClosed.make()
            wakeUp.loseDescriptors()
        }
    }

    /// Gives the set up if descriptors were lost and it is one of them. The loop's thread.
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
        control(EPOLL_CTL_ADD, fd, events: events, token: token)
    }

    /// Returns the errno, or nil. EBADF and ENOENT say that `fd` was closed, and perhaps opened anew, since it was added.
    func refresh(_ fd: Int32, events: UInt32, token: UInt64) -> Int32? {
        control(EPOLL_CTL_MOD, fd, events: events, token: token)
    }

    /// Returns the errno, or nil.
    func remove(_ fd: Int32) -> Int32? { control(EPOLL_CTL_DEL, fd, events: 0, token: 0) }

    /// A set that is not there, or is found lost now, has no members: nothing can be added, and all else is well.
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
    /// Waits, for ever if there is no timeout, and hands the events to `receive`. The loop's thread.
    func wait(for timeout: Duration?, _ receive: (borrowing Events) -> Void) {
        let fd = descriptor
        harvests.add(1, ordering: .relaxed)
        let capacity = capacity.load(ordering: .relaxed)
        unsafe withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: capacity) { events in
            guard let start = events.baseAddress else { return }
            let count = unsafe event_run_loop_wait(
                fd,
                start,
                Int32(capacity),
                timeout?.nanoseconds ?? -1
            )
            // Interrupted by a signal: nothing came. Any other error means that the number is no longer a set's.
            if count < 0, count != -EINTR { close() }
            noteAsked()
            self.capacity.store(
                count == capacity ? Poller.capacities.greatest : Poller.capacities.usual,
                ordering: .relaxed
            )
            unsafe receive(Events(harvested: UnsafeBufferPointer(rebasing: events[..<max(0, Int(count))])))
        }
    }

    func noteAsked() {
        turnsSinceAsked.store(0, ordering: .relaxed)
        timeAsked.store(MonotonicInstant.now.nanoseconds, ordering: .relaxed)
    }

    /// To be asked in each turn with work at hand: whether the kernel must be asked all the same. The loop's thread.
    func isOverdue() -> Bool {
        let turns = turnsSinceAsked.load(ordering: .relaxed) + 1
        turnsSinceAsked.store(turns, ordering: .relaxed)
        if turns >= Poller.turnsWithoutAsking.load(ordering: .relaxed) { return true }
        let last = MonotonicInstant(nanoseconds: timeAsked.load(ordering: .relaxed))
        return last.duration(to: .now) >= Poller.longestWithoutAsking
    }
}

/// Which epoll set of this library has which descriptor number.
///
/// When a program closes descriptors that are not its own, several loops make new ones at once, and one of them can get the number that
/// another takes for its set. Whoever gets a number tells the former owner.
enum SetRegistry {
    private struct Owner: Sendable {
        let poller: ObjectIdentifier
        let wakeUp: WakeUp
    }

    private static let owners = ForkSafeMutex<[Int32: Owner]>([:])

    /// Notes that the kernel has just given the number to a new set of `poller`.
    static func enter(_ number: Int32, of poller: Poller, wakenBy wakeUp: WakeUp) {
        let owner = Owner(poller: ObjectIdentifier(poller), wakeUp: wakeUp)
        let former = owners.withLock { $0.updateValue(owner, forKey: number) }
        former?.wakeUp.loseDescriptors()
    }

    /// Whether the number is still that set's.
    static func has(_ number: Int32, of poller: Poller) -> Bool {
        owners.withLock { $0[number]?.poller == ObjectIdentifier(poller) }
    }

    /// Forgets the set; nil if its number was another's already, else who wakes its loop.
    static func leave(_ number: Int32, of poller: Poller) -> WakeUp? {
        owners.withLock { owners in
            owners[number]?.poller == ObjectIdentifier(poller) ? owners.removeValue(forKey: number)?.wakeUp : nil
        }
    }
}
