import RunLoopKit
import StackCapture
import StallReports

/// A wait that can be followed to the thread that ends it, by the call in which the thread waits.
enum KnownWait: Hashable, Sendable {
    case futex(FutexWait)
    /// A wait of this package's for a message port.
    case port(PortWait.Words)

    /// Nil for another call. The memory of a port's wait is read now: the thread must be in the call before and after.
    init?(_ call: SystemCall, _ memory: LockMemory) {
        if let futex = FutexWait(call) {
            self = .futex(futex)
        } else if let words = Self.words(call, memory) {
            self = .port(words)
        } else {
            return nil
        }
    }

    /// The words beside the memory that the call was given.
    private static func words(_ call: SystemCall, _ memory: LockMemory) -> PortWait.Words? {
        let address: UInt
        switch call.name {
        case "epoll_wait"?, "epoll_pwait"?, "epoll_pwait2"?:
            guard call.arguments.count > 1 else { return nil }
            address = call.arguments[1] &- UInt(PortWait.count * 4)
        case "ppoll"?:
            guard call.arguments.count > 1, call.arguments[1] == 1 else { return nil }
            address = call.arguments[0] &+ UInt(PortWait.offsetBehindPolled)
        default: return nil
        }
        return memory.words(address, PortWait.count).flatMap(PortWait.Words.init)
    }

    var isTimed: Bool {
        switch self {
        case .futex(let futex): futex.isTimed
        case .port(let port): port.isTimed
        }
    }

    /// Whether the thread that could end this wait can do so while it waits in the way that `other` says: a loop that waits for a reply
    /// serves the ports of that mode.
    func canEnd(during other: KnownWait) -> Bool {
        guard case .port(let port) = self, case .port(let other) = other else { return false }
        return port.isServed(during: other)
    }
}

/// The arguments of the futex(2) call in which a thread waits. Pure.
struct FutexWait: Hashable, Sendable {
    enum Operation: Hashable, Sendable {
        /// FUTEX_WAIT: waits while the word has the expected value. Its timeout is relative.
        case wait
        /// FUTEX_WAIT_BITSET: the same, with an absolute timeout. Used by glibc's waits with a deadline, and those that could
        /// have one.
        case waitBitset
        /// FUTEX_LOCK_PI, FUTEX_LOCK_PI2: takes a lock whose word holds its owner's thread number, by the kernel's protocol.
        case lockPI
    }

    var address: UInt
    var operation: Operation
    /// Only threads of this process wake it. Locks shared between processes are not private; neither is the wait for a thread's
    /// end.
    var isPrivate: Bool
    /// The value that the thread expected.
    var expected: UInt32
    /// Whether it has a timeout.
    var isTimed: Bool

    /// Nil for other calls, and for operations that do not wait for one word.
    init?(_ call: SystemCall) {
        guard call.name == "futex", call.arguments.count >= 4 else { return nil }
        let privateFlag: UInt = 128
        let clockRealtime: UInt = 256
        switch call.arguments[1] & 0xffff_ffff & ~(privateFlag | clockRealtime) {
        case 0: operation = .wait
        case 9: operation = .waitBitset
        case 6, 13: operation = .lockPI
        default: return nil
        }
        address = call.arguments[0]
        isPrivate = call.arguments[1] & privateFlag != 0
        expected = UInt32(truncatingIfNeeded: call.arguments[2])
        isTimed = call.arguments[3] != 0
    }

    /// The kernel's mark in a word that others wait for: FUTEX_WAITERS.
    static let waiters: UInt32 = 0x8000_0000

    /// The thread number in a word: FUTEX_TID_MASK.
    static func owner(of word: UInt32) -> Int32 { Int32(word & 0x3fff_ffff) }
}

/// One of this package's own waits for another thread: until a loop serves a request, or a worker ends. It names the other
/// thread.
struct LoopWait: Hashable {
    var kind: LockKind
    /// 0 if it is unknown.
    var thread: Int32

    /// Nil for memory that is not such a wait.
    init?(_ wait: FutexWait, _ memory: LockMemory) {
        guard wait.expected == WaitPoint.closed, let words = memory.words(wait.address, WaitPoint.words),
            words[0] == WaitPoint.closed, UInt64(words[2]) | UInt64(words[3]) << 32 == WaitPoint.mark
        else { return nil }
        switch WaitPoint.Reason(rawValue: words[1]) {
        case .loopRequest: kind = .loopRequest
        case .workerEnd: kind = .workerEnd
        case .workerStart, nil: return nil
        }
        thread = Int32(bitPattern: words[4])
    }
}
