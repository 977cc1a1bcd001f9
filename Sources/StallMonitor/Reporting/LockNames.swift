import StallReports

/// What the function names on a waiting thread's stack show about the lock it waits for. Pure.
///
/// Neither source is enough alone: any memory may look like a lock, and names do not show the owner. If they contradict each
/// other, the names count and no owner is reported.
struct LockNames: Hashable {
    /// The kind of lock that the innermost known function waits for.
    let named: LockKind?
    /// Whether the innermost calls, or some of them, have names.
    let areKnown: Bool
    /// Whether the program made the system call itself. Then it is not a lock of the C library.
    let isOwnCall: Bool

    /// How many of the innermost frames are looked at.
    private static let depth = 8

    /// - Parameter frames: The frames of the waiting thread, innermost first.
    init(_ frames: [StallReport.Frame]) {
        let names = frames.prefix(Self.depth).map { ($0.symbol ?? $0.function).map(Self.plain) }
        areKnown = names.prefix(4).contains { $0 != nil }
        isOwnCall = names.first == "syscall"
        let inner = names.compactMap { $0.flatMap(Self.kind) }
        // libdispatch's semaphores wait in POSIX semaphores; Swift's once waits in a PI futex below a function with its name.
        named =
            inner.first == .semaphore && inner.dropFirst().first == .dispatchSemaphore
            ? .dispatchSemaphore : inner.first
    }

    /// The name without leading underscores and version: glibc has several names for each function.
    private static func plain(_ name: String) -> String {
        String((name.split(separator: "@").first ?? "").drop { $0 == "_" })
    }

    private static func kind(of name: String) -> LockKind? {
        exact[name] ?? prefixes.first { name.hasPrefix($0.text) }?.kind ?? swift(name)
    }

    private static func swift(_ name: String) -> LockKind? {
        if name.hasPrefix("$s15Synchronization"), name.contains("Mutex") { return .swiftMutex }
        return name.hasPrefix("ZN5swift") && name.contains("once_slow") ? .swiftOnce : nil
    }

    private static let exact: [String: LockKind] = [
        "sem_wait": .semaphore, "sem_timedwait": .semaphore, "sem_clockwait": .semaphore,
        // glibc waits in a function without a public name, which only symbol files contain.
        "pthread_once": .once, "pthread_once_slow": .once, "call_once": .once,
        "pthread_join": .threadJoin, "pthread_timedjoin_np": .threadJoin, "pthread_clockjoin_np": .threadJoin,
        "pthread_clockjoin_ex": .threadJoin, "thrd_join": .threadJoin,
        "pthread_barrier_wait": .barrier,
        "malloc": .libraryLock, "free": .libraryLock, "calloc": .libraryLock, "realloc": .libraryLock,
        "libc_malloc": .libraryLock, "libc_free": .libraryLock, "posix_memalign": .libraryLock,
        "aligned_alloc": .libraryLock,
        "DISPATCH_WAIT_FOR_QUEUE__": .dispatchQueue,
        "dispatch_once": .dispatchOnce, "dispatch_once_f": .dispatchOnce, "dispatch_once_wait": .dispatchOnce,
        "dispatch_semaphore_wait": .dispatchSemaphore, "dispatch_semaphore_wait_slow": .dispatchSemaphore,
        "dispatch_group_wait": .dispatchGroup, "dispatch_group_wait_slow": .dispatchGroup,
        "dispatch_block_wait": .dispatchGroup,
        "dispatch_unfair_lock_lock_slow": .dispatchLock,
        "swift_once": .swiftOnce,
    ]

    private static let prefixes: [(text: String, kind: LockKind)] = [
        ("pthread_mutex_", .mutex), ("mtx_", .mutex), ("pthread_cond_", .condition), ("cnd_", .condition),
        ("pthread_rwlock_", .readWriteLock), ("dispatch_sync", .dispatchQueue),
        ("dispatch_barrier_sync", .dispatchQueue), ("dispatch_async_and_wait", .dispatchQueue),
        ("dispatch_barrier_async_and_wait", .dispatchQueue),
    ]

    /// The kind of the lock by names and memory, and whether the owner that was read counts.
    func judge(_ kind: LockKind, hasOwner: Bool) -> (kind: LockKind, keepsOwner: Bool) {
        switch kind {
        case .mutex, .recursiveMutex, .errorCheckingMutex, .adaptiveMutex:
            // A condition's waiter locks the mutex again before it returns.
            return believe(kind, ifOf: [.mutex, .condition])
        case .readWriteLock: return believe(kind, ifOf: [.readWriteLock])
        case .threadJoin: return believe(kind, ifOf: [.threadJoin])
        case .stream: return (named ?? kind, named == nil)
        case .semaphore where isOwnCall && named == nil: return (.futex, false)
        // sem_wait jumps to a function without a public name, and is not on the stack itself.
        case .semaphore: return (named ?? kind, false)
        case .piFutex:
            let makers: [LockKind: LockKind] = [
                .swiftMutex: .swiftMutex, .swiftOnce: .swiftOnce, .dispatchLock: .dispatchLock, .mutex: .piMutex,
            ]
            return (named.flatMap { makers[$0] } ?? kind, true)
        case .futex where hasOwner: return (named == .dispatchOnce ? .dispatchOnce : kind, true)
        case .futex: return (named ?? kind, false)
        default: return (kind, true)
        }
    }

    private func believe(_ kind: LockKind, ifOf kinds: Set<LockKind>) -> (kind: LockKind, keepsOwner: Bool) {
        if let named { return kinds.contains(named) ? (kind, true) : (named, false) }
        // The program has no names at all, so only the memory is known.
        return areKnown ? (.futex, false) : (kind, true)
    }
}
