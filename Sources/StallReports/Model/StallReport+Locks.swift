// What a thread waited for that another thread holds.

extension StallReport {
    /// A lock that a thread was found waiting for, and who held it. Told only of an owner that stood in the lock before and after
    /// its stack was taken, while the waiting thread slept on.
    public struct Lock: Codable, Hashable, Sendable {
        /// `futex` where nothing more is known than that the thread waits for another one.
        public var kind: LockKind
        /// Where the lock lies; of a joined thread, a dispatch queue's or a condition's waiter, what it waits on.
        public var address: Address
        /// A dispatch queue's label, or that of the run loop that was asked.
        public var label: String?
        /// Nil for a lock that has none (a semaphore, a condition), and where it could not be told for certain.
        public var owner: Thread?
        /// Where the owner was read. Nil without one.
        public var knownBy: OwnerEvidence?
        /// The system call that the owner was found in. Nil for an owner that ran, or whose stack could not be taken.
        public var ownerCall: SystemCall?
        /// The number of a thread that took it and ended without a release: nobody will release it any more.
        public var abandonedBy: Int32?
        /// Whether the wait ends by itself after a time.
        public var timed: Bool

        /// Without an owner, and for as long as it takes, unless said otherwise.
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

    /// One thread's wait for another. Its stack is the one among the report's `stacks` with the same thread's number.
    public struct LockWait: Codable, Hashable, Sendable {
        /// The one that waits.
        public var thread: Thread
        /// What it waits for.
        public var lock: Lock

        /// Nothing is defaulted or checked.
        public init(thread: Thread, lock: Lock) {
            (self.thread, self.lock) = (thread, lock)
        }
    }
}

/// What kind of lock a thread waits for. More may be added.
public struct LockKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Something that threads wait on by futex(2), of unknown make.
    public static let futex = LockKind(rawValue: "futex")
    /// A futex whose word names its owner, with priority inheritance: of unknown make.
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
    /// A lock inside the C library, malloc's for example: it does not say who holds it.
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

    /// For a sentence, with its article. A kind that this version does not know is told by its name.
    public var words: String { Self.words[self] ?? "a \(rawValue)" }

    /// Whether threads take it in turns, so that one of them holds it. The others are signalled by whoever comes by.
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
    ]
}

/// Where the owner of a lock was read: how far to trust it.
public struct OwnerEvidence: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The futex's own word holds the owner's number, as the kernel or the lock's maker has laid down: futex(2), FUTEX_LOCK_PI.
    public static let lockWord = OwnerEvidence(rawValue: "lock_word")
    /// glibc's mutex names its owner beside its word.
    public static let mutexOwner = OwnerEvidence(rawValue: "mutex_owner")
    /// glibc's rwlock names the writer that holds it.
    public static let writer = OwnerEvidence(rawValue: "rwlock_writer")
    /// The state of the dispatch queue names the thread that drains it.
    public static let queueState = OwnerEvidence(rawValue: "queue_state")
    /// The thread that is waited for is the one that the futex's word names until it has ended.
    public static let joinedThread = OwnerEvidence(rawValue: "joined_thread")
    /// glibc's stream lock points at its owner's descriptor.
    public static let streamOwner = OwnerEvidence(rawValue: "stream_owner")
    /// The number that this package's own waits for another thread keep beside the word that the kernel waits at.
    public static let waitPoint = OwnerEvidence(rawValue: "wait_point")
}
