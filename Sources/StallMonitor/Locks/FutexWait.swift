import RunLoopKit
import StackCapture
import StallReports

/// What a thread told the kernel as it went to wait: futex(2). Pure.
struct FutexWait: Hashable, Sendable {
    enum Operation: Hashable, Sendable {
        /// FUTEX_WAIT: waits while the word has the expected value. Its timeout is relative.
        case wait
        /// FUTEX_WAIT_BITSET: the same, with an absolute timeout. glibc's waits with a deadline, and those that could have one.
        case waitBitset
        /// FUTEX_LOCK_PI, FUTEX_LOCK_PI2: takes a lock whose word holds its owner's number, by the kernel's own rule.
        case lockPI
    }

    var address: UInt
    var operation: Operation
    /// Only threads of this process wake it. Locks that processes share are not private; neither is a thread's end.
    var isPrivate: Bool
    /// What the word was when the thread went to wait.
    var expected: UInt32
    /// It ends by itself.
    var isTimed: Bool

    /// Nil for another call, and for an operation that does not wait for one word.
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

    /// The thread's number in a word: FUTEX_TID_MASK.
    static func owner(of word: UInt32) -> Int32 { Int32(word & 0x3fff_ffff) }
}

/// A wait of this package's own for another thread: that a loop serve a request, or that a worker end. It says itself whose thread that is.
struct LoopWait: Hashable {
    var kind: LockKind
    /// 0 where it is not known.
    var thread: Int32

    /// Nil for memory that is no such wait.
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
