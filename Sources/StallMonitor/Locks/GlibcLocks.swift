import StallReports

// glibc's locks in memory. The layouts are part of its ABI: unchanged from 2.17 (rwlock: 2.25) to 2.41, on x86-64 and aarch64.
// Each reader accepts only memory that can be such a lock, and checks it against the futex's arguments.

/// `pthread_mutex_t`: lock word, recursion count, owner, users, kind. sysdeps/nptl/bits/struct_mutex.h.
struct GlibcMutex: Hashable {
    var word: UInt32
    var owner: Int32
    var users: UInt32
    var kindBits: UInt32

    private static let robust: UInt32 = 16
    private static let inheriting: UInt32 = 32
    /// Type, robust, PI, priority-protected, shared between processes, and whether lock elision was chosen.
    private static let knownBits: UInt32 = 3 | 16 | 32 | 64 | 128 | 256 | 512

    /// Nil for memory that is not a mutex with an owner, or that cannot be read.
    init?(at address: UInt, _ memory: LockMemory) {
        guard address % 4 == 0, let words = memory.words(address, 6) else { return nil }
        word = words[0]
        owner = Int32(truncatingIfNeeded: words[2])
        users = words[3]
        kindBits = words[4]
        guard owner > 0, users > 0, users < 1 << 22, kindBits & ~Self.knownBits == 0 else { return nil }
    }

    var isRobust: Bool { kindBits & Self.robust != 0 }
    /// Its owner may be a thread of another process.
    var isShared: Bool { kindBits & 128 != 0 }
    var isInheriting: Bool { kindBits & Self.inheriting != 0 }

    /// Its type: pthread_mutexattr_settype(3).
    var kind: LockKind {
        if isRobust { return .robustMutex }
        if isInheriting { return .piMutex }
        switch kindBits & 3 {
        case 1: return .recursiveMutex
        case 2: return .errorCheckingMutex
        case 3: return .adaptiveMutex
        default: return .mutex
        }
    }
}

/// `pthread_rwlock_t` since 2.25: readers, writers, two futexes, and the writer. sysdeps/nptl/bits/struct_rwlock.h.
struct GlibcReadWriteLock: Hashable {
    var address: UInt
    /// The writer that holds it; 0 while readers do.
    var writer: Int32
    /// Its writer may be a thread of another process.
    var isShared: Bool

    /// Readers wait at its first or third word; writers at the third or fourth.
    private static let futexes: [UInt] = [0, 8, 12]

    /// The lock that the futex is part of. Nil for memory that is not such a lock, or that cannot be read.
    init?(ofFutex wait: FutexWait, _ memory: LockMemory) {
        for offset in Self.futexes where wait.address > offset {
            guard let words = memory.words(wait.address - offset, 14), Self.isLock(words, wait, offset) else {
                continue
            }
            address = wait.address - offset
            writer = Int32(truncatingIfNeeded: words[6])
            isShared = words[7] != 0
            return
        }
        return nil
    }

    private static func isLock(_ words: [UInt32], _ wait: FutexWait, _ offset: UInt) -> Bool {
        let (readers, phase, turn, writer) = (words[0], words[2], words[3], Int32(truncatingIfNeeded: words[6]))
        // Bit 0 of the readers is the phase; bit 1 is set when a writer holds it or is next. Both futexes are 0 or 1, plus bit 1
        // for waiters.
        guard phase < 4, turn < 4, words[4] == 0, words[5] == 0, words[7] < 2, words[12] < 3, writer >= 0 else {
            return false
        }
        // The words after that, elision and padding, are always zero.
        guard words[8...11].allSatisfy({ $0 == 0 }), readers & 2 != 0 || writer == 0 else { return false }
        switch offset {
        case 0: return wait.expected & 4 != 0 && readers & 4 != 0
        default: return [2, 3].contains(wait.expected) && words[Int(offset / 4)] & 2 != 0 && readers & 2 != 0
        }
    }
}

/// `sem_t` where 64-bit words are atomic: value, waiters, whether it is shared. sysdeps/nptl/internaltypes.h, `new_sem`.
enum GlibcSemaphore {
    /// Whether the futex can be that of a semaphore.
    static func isOne(_ wait: FutexWait, _ memory: LockMemory) -> Bool {
        guard let words = memory.words(wait.address, 4), words[0] == 0, (1..<1 << 20).contains(words[1]) else {
            return false
        }
        // FUTEX_PRIVATE and FUTEX_SHARED, by which glibc also chooses the call's flag.
        guard words[2] == (wait.isPrivate ? 0 : 128) else { return false }
        // The last word is padding, which sem_init(3) does not write. It is a thread's number if this is the end of a condition and the
        // beginning of a locked mutex.
        return words[3] == 0 || memory.knowsThreads && !memory.hasThread(Int32(truncatingIfNeeded: words[3]))
    }
}

/// A stream's lock: word, recursion count, the owner's thread descriptor. sysdeps/nptl/stdio-lock.h.
struct GlibcStreamLock: Hashable {
    var owner: Int32

    init?(at address: UInt, _ memory: LockMemory) {
        guard let offset = memory.threadNumberOffset, let words = memory.words(address, 2), words[0] == 2,
            (1..<1 << 16).contains(words[1]), let descriptor = memory.pointer(at: address &+ 8),
            Self.isDescriptor(descriptor, memory), let number = memory.word(at: descriptor &+ offset)
        else { return nil }
        owner = Int32(truncatingIfNeeded: number)
        guard owner > 0 else { return nil }
    }

    private static func isDescriptor(_ address: UInt, _ memory: LockMemory) -> Bool {
        guard address != 0, address % 16 == 0, address < 1 << 56 else { return false }
        // On x86-64 the descriptor begins with the control block, which points to itself.
        #if arch(x86_64)
            return memory.pointer(at: address &+ 16) == address
        #else
            return true
        #endif
    }
}

/// Offset of the thread number in glibc's thread descriptor (`struct pthread`, `tid`): nptl/descr.h.
enum GlibcThread {
    #if arch(x86_64)
        static let numberOffset: UInt = 720
    #else
        static let numberOffset: UInt = 208
    #endif

    /// The same, if it is right for the calling thread's own descriptor. Nil in another libc.
    static func numberOffset(ofSelf descriptor: UInt, _ threadID: Int32, _ memory: LockMemory) -> UInt? {
        memory.word(at: descriptor &+ numberOffset) == UInt32(bitPattern: threadID) ? numberOffset : nil
    }
}

/// Memory and threads, as the readers of locks see them. Tests use recorded ones.
struct LockMemory {
    /// Reads 32-bit words. Nil if not all of them can be read.
    let words: (_ address: UInt, _ count: Int) -> [UInt32]?
    /// Whether this process has a thread with that number.
    let hasThread: (Int32) -> Bool
    /// Whether it is known of every number. If not, a number without a thread proves nothing.
    var knowsThreads = true
    /// Offset of the thread number in glibc's descriptor, in bytes from the value of pthread_self. Nil if unknown.
    var threadNumberOffset: UInt?

    func word(at address: UInt) -> UInt32? { words(address, 1)?.first }

    func pointer(at address: UInt) -> UInt? {
        guard let words = words(address, 2) else { return nil }
        return UInt(words[0]) | UInt(words[1]) << 32
    }

    /// The text at an address: printable ASCII, at most 64 bytes. Nil for anything else.
    func label(at address: UInt) -> String? {
        var bytes: [UInt8] = []
        // Word by word: it may end right before memory that cannot be read.
        for word in 0..<16 {
            guard let four = words(address &+ UInt(word) * 4, 1)?.first else { return nil }
            for shift in [0, 8, 16, 24] as [UInt32] {
                let byte = UInt8(truncatingIfNeeded: four >> shift)
                if byte == 0 { return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self) }
                guard (0x20..<0x7f).contains(byte) else { return nil }
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
