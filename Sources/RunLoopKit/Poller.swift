internal import CRunLoopShims
internal import Glibc
internal import Synchronization

/// One mode's epoll set: the loop's wake-up eventfd, on main the main queue's, and the mode's descriptors. Made when the mode first
/// waits or gets a descriptor.
///
/// Opening, closing and changing happen under the mode's lock; waiting is the loop's thread alone and takes none.
final class Poller: Sendable {
    /// What an event of the set's own members carries; descriptors' tokens are below.
    static let wakeUpToken = UInt64.max
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
    static let patience = (turns: 8, time: Duration.microseconds(50))

    private let epoll = Atomic<Int32>(-1)
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

    var isOpen: Bool { epoll.load(ordering: .acquiring) >= 0 }
    var harvest: UInt64 { harvests.load(ordering: .relaxed) }

    /// Makes the set, if there is none yet.
    func open(for wakeUp: WakeUp) throws(RunLoopError) {
        guard !isOpen else { return }
        let eventfd = try wakeUp.descriptor()
        let made = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard made >= 0 else { throw RunLoopError(.outOfResources, errno: errno) }
        epoll.store(made, ordering: .releasing)
        if let failure = add(eventfd, events: EPOLLIN.rawValue | EPOLLET.rawValue, token: Poller.wakeUpToken) {
            close()
            throw RunLoopError(.outOfResources, errno: failure)
        }
    }

    func close() {
        let fd = epoll.exchange(-1, ordering: .acquiringAndReleasing)
        if fd >= 0 { Glibc.close(fd) }
        watchesMainQueue.store(false, ordering: .relaxed)
        watchesClock.store(false, ordering: .relaxed)
    }

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

    /// Waits, for ever if there is no timeout, and hands the events to `receive`. The loop's thread.
    func wait(for timeout: Duration?, _ receive: (borrowing Events) -> Void) {
        let fd = epoll.load(ordering: .relaxed)
        harvests.add(1, ordering: .relaxed)
        let capacity = capacity.load(ordering: .relaxed)
        unsafe withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: capacity) { events in
            guard let start = events.baseAddress else { return }
            let count = unsafe event_run_loop_wait(
                fd,
                start,
                Int32(capacity),
                timeout?.saturatedNanoseconds ?? -1
            )
            // Interrupted by a signal: nothing came. Any other error means that the set itself is broken.
            precondition(
                count >= 0 || count == -EINTR,
                "epoll_wait: errno \(-count); was the loop's descriptor closed?"
            )
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

    private static let hasNoPatience = Atomic<Bool>(false)

    /// Has the kernel asked in each turn, as Foundation does, so that the two can be compared. For the whole process; not taken back.
    static func losePatienceForTests() { hasNoPatience.store(true, ordering: .relaxed) }

    /// To be asked in each turn with work at hand: whether the kernel must be asked all the same. The loop's thread.
    func isOverdue() -> Bool {
        let turns = turnsSinceAsked.load(ordering: .relaxed) + 1
        turnsSinceAsked.store(turns, ordering: .relaxed)
        if turns >= Poller.patience.turns || Poller.hasNoPatience.load(ordering: .relaxed) { return true }
        let last = MonotonicInstant(nanoseconds: timeAsked.load(ordering: .relaxed))
        return last.duration(to: .now) >= Poller.patience.time
    }

    private func control(_ operation: Int32, _ fd: Int32, events: UInt32, token: UInt64) -> Int32? {
        var event = unsafe epoll_event(events: events, data: epoll_data_t(u64: token))
        return unsafe epoll_ctl(epoll.load(ordering: .relaxed), operation, fd, &event) == 0 ? nil : errno
    }
}
