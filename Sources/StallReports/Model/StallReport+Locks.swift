// What a thread waited for that another thread holds.

extension StallReport {
    /// A lock for which a thread was found waiting, and its owner. An owner is reported only if it was in the lock both before
    /// and after its stack was captured, while the waiting thread slept on.
    public struct Lock: Codable, Hashable, Sendable {
        /// `futex` if it is only known that the thread waits for another one.
        public var kind: LockKind
        /// The address of the lock; for a joined thread, a dispatch queue or a condition, the address on which the thread
        /// waits.
        public var address: Address
        /// A dispatch queue's label, that of the run loop to which a request was made, or the name of a port.
        public var label: String?
        /// Nil for a lock that has no owner (a semaphore, a condition), and if it could not be determined with certainty.
        public var owner: Thread?
        /// How the owner was determined. Nil without one.
        public var knownBy: OwnerEvidence?
        /// The system call in which the owner was found. Nil for an owner that ran, or whose stack could not be captured.
        public var ownerCall: SystemCall?
        /// The id of a thread that took it and ended without releasing it: it will never be released.
        public var abandonedBy: Int32?
        /// Whether the wait has a timeout.
        public var timed: Bool

        /// Creates a lock, by default without an owner and without a timeout.
        public init(
            kind: LockKind,
            address: Address,
            label: String? = nil,
            owner: Thread? = nil,
            knownBy: OwnerEvidence? = nil,
            ownerCall: SystemCall? = nil,
            abandonedBy: Int32? = nil,
            timed: Bool = false
        ) {
            (self.kind, self.address, self.label) = (kind, address, label)
            (self.owner, self.knownBy, self.ownerCall) = (owner, knownBy, ownerCall)
            (self.abandonedBy, self.timed) = (abandonedBy, timed)
        }

        private enum CodingKeys: String, CodingKey {
            case kind, address, label, owner
            case knownBy = "known_by"
            case ownerCall = "owner_call"
            case abandonedBy = "abandoned_by"
            case timed
        }
    }

    /// One thread's wait for another. Its stack is the one among the report's `stacks` with the same thread id.
    public struct LockWait: Codable, Hashable, Sendable {
        /// The waiting thread.
        public var thread: Thread
        /// What it waits for.
        public var lock: Lock

        /// Creates one from these values, which are not checked.
        public init(thread: Thread, lock: Lock) {
            (self.thread, self.lock) = (thread, lock)
        }
    }
}

/// The kind of lock for which a thread waits. More may be added.
public struct LockKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A futex(2) of an unknown implementation.
    public static let futex = LockKind(rawValue: "futex")
    /// A futex with priority inheritance, whose word names its owner, of an unknown implementation.
    public static let piFutex = LockKind(rawValue: "pi_futex")
    /// A pthread mutex of the default kind; Foundation's `NSLock` is one.
    public static let mutex = LockKind(rawValue: "mutex")
    /// A recursive pthread mutex.
    public static let recursiveMutex = LockKind(rawValue: "recursive_mutex")
    /// A pthread mutex that checks for errors.
    public static let errorCheckingMutex = LockKind(rawValue: "error_checking_mutex")
    /// A pthread mutex that spins before it sleeps.
    public static let adaptiveMutex = LockKind(rawValue: "adaptive_mutex")
    /// A pthread mutex that survives its owner's end.
    public static let robustMutex = LockKind(rawValue: "robust_mutex")
    /// A pthread mutex with priority inheritance.
    public static let piMutex = LockKind(rawValue: "pi_mutex")
    /// A pthread read-write lock, waited for to read or to write.
    public static let readWriteLock = LockKind(rawValue: "rwlock")
    /// A pthread condition variable: it has no owner.
    public static let condition = LockKind(rawValue: "condition")
    /// A POSIX semaphore: it has no owner.
    public static let semaphore = LockKind(rawValue: "semaphore")
    /// pthread_once(3): the thread that initializes is not known.
    public static let once = LockKind(rawValue: "once")
    /// pthread_barrier_wait(3): it has no owner.
    public static let barrier = LockKind(rawValue: "barrier")
    /// The end of a thread: pthread_join(3). Its "owner" is that thread.
    public static let threadJoin = LockKind(rawValue: "thread_join")
    /// A stream's lock: stdout is written by one thread at a time.
    public static let stream = LockKind(rawValue: "stream")
    /// A lock inside the C library, for example malloc's: its owner cannot be read.
    public static let libraryLock = LockKind(rawValue: "c_library_lock")
    /// `Mutex` of Swift's Synchronization.
    public static let swiftMutex = LockKind(rawValue: "swift_mutex")
    /// The first use of a Swift global or static, which another thread initializes.
    public static let swiftOnce = LockKind(rawValue: "swift_once")
    /// `sync` onto a dispatch queue that is busy.
    public static let dispatchQueue = LockKind(rawValue: "dispatch_queue")
    /// dispatch_once.
    public static let dispatchOnce = LockKind(rawValue: "dispatch_once")
    /// A dispatch semaphore: it has no owner.
    public static let dispatchSemaphore = LockKind(rawValue: "dispatch_semaphore")
    /// A dispatch group: it has no owner.
    public static let dispatchGroup = LockKind(rawValue: "dispatch_group")
    /// A lock inside libdispatch.
    public static let dispatchLock = LockKind(rawValue: "dispatch_lock")
    /// A request to another thread's run loop: `performAndWait`. Its "owner" is that loop's thread, its label the loop's.
    public static let loopRequest = LockKind(rawValue: "loop_request")
    /// The end of a worker thread: `WorkerThread.join`. Its "owner" is the worker.
    public static let workerEnd = LockKind(rawValue: "worker_end")
    /// The reply to a request through a message port: `RemotePort.request`. Its "owner" is the thread whose loop has the port.
    public static let portReply = LockKind(rawValue: "port_reply")
    /// Room in the queue of a message port. Its "owner" is the thread whose loop has the port.
    public static let portRoom = LockKind(rawValue: "port_room")

    /// A phrase for a sentence, with its article. An unknown kind is shown by its name.
    public var words: String { Self.words[self] ?? "a \(rawValue)" }

    /// Whether it is held by one thread at a time. The others are signalled by any thread.
    public var canHaveOwner: Bool { !Self.ownerless.contains(self) }

    private static let ownerless: Set<LockKind> = [
        .condition, .semaphore, .barrier, .dispatchSemaphore, .dispatchGroup,
    ]

    private static let words: [LockKind: String] = [
        .futex: "another thread, by a futex of unknown make",
        .piFutex: "a priority-inheriting lock",
        .mutex: "a pthread mutex",
        .recursiveMutex: "a recursive pthread mutex",
        .errorCheckingMutex: "an error-checking pthread mutex",
        .adaptiveMutex: "an adaptive pthread mutex",
        .robustMutex: "a robust pthread mutex",
        .piMutex: "a priority-inheriting pthread mutex",
        .readWriteLock: "a pthread rwlock",
        .condition: "a condition variable",
        .semaphore: "a semaphore",
        .once: "a pthread_once",
        .barrier: "a barrier",
        .threadJoin: "the end of a thread",
        .stream: "a stdio stream's lock",
        .libraryLock: "a lock of the C library",
        .swiftMutex: "a Swift Mutex",
        .swiftOnce: "the initialization of a Swift global",
        .dispatchQueue: "a dispatch queue",
        .dispatchOnce: "a dispatch_once",
        .dispatchSemaphore: "a dispatch semaphore",
        .dispatchGroup: "a dispatch group",
        .dispatchLock: "a lock of libdispatch",
        .loopRequest: "a request to another run loop",
        .workerEnd: "the end of a worker thread",
        .portReply: "the reply to a request through a port",
        .portRoom: "room in the queue of a port",
    ]
}

/// How the owner of a lock was determined, and so how reliable it is.
public struct OwnerEvidence: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The futex's own word contains the owner's id, as defined by the kernel or the lock's implementation: futex(2),
    /// FUTEX_LOCK_PI.
    public static let lockWord = OwnerEvidence(rawValue: "lock_word")
    /// glibc's mutex stores its owner beside its word.
    public static let mutexOwner = OwnerEvidence(rawValue: "mutex_owner")
    /// glibc's rwlock stores the writer that holds it.
    public static let writer = OwnerEvidence(rawValue: "rwlock_writer")
    /// The state of the dispatch queue contains the thread that drains it.
    public static let queueState = OwnerEvidence(rawValue: "queue_state")
    /// The futex's word contains the id of the joined thread until that has ended.
    public static let joinedThread = OwnerEvidence(rawValue: "joined_thread")
    /// glibc's stream lock points at its owner's descriptor.
    public static let streamOwner = OwnerEvidence(rawValue: "stream_owner")
    /// The thread id that this package's own waits for another thread keep beside the word on which the kernel waits.
    public static let waitPoint = OwnerEvidence(rawValue: "wait_point")
}
