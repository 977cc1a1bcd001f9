import RunLoopKit
import StackCapture
import StallDiagnosis
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
        guard call.arguments.count > 1 else { return nil }
        let address: UInt
        if WaitCalls.onEpollSet.contains(call.number) {
            address = call.arguments[1] &- UInt(PortWait.count * 4)
        } else if call.name == "ppoll", call.arguments[1] == 1 {
            address = call.arguments[0] &+ UInt(PortWait.offsetBehindPolled)
        } else {
            return nil
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
        guard call.arguments.count >= 4, call.name == "futex" || Self.isContinued(call) else { return nil }
        let privateFlag: UInt = 128
        let clockRealtime: UInt = 256
        switch call.arguments[1] & 0xffff_ffff & ~(privateFlag | clockRealtime) {
        case 0: operation = .wait
        case 9: operation = .waitBitset
        // The kernel continues these under their own name.
        case 6 where call.name == "futex", 13 where call.name == "futex": operation = .lockPI
        default: return nil
        }
        address = call.arguments[0]
        isPrivate = call.arguments[1] & privateFlag != 0
        expected = UInt32(truncatingIfNeeded: call.arguments[2])
        isTimed = call.arguments[3] != 0
    }

    /// Whether it may be a wait with a timeout that the kernel continues after a stop of the process: by another call, with the arguments
    /// still in their registers. Of the calls that are continued so, only this one has such a flag.
    private static func isContinued(_ call: SystemCall) -> Bool {
        WaitCalls.restarts.contains(call.number) && call.arguments[1] & 128 != 0 && call.arguments[3] != 0
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

/// A thread's wait in `DispatchQueue.sync` for a busy queue, as libdispatch for Linux keeps it: a `dispatch_sync_context_s` on
/// the waiting thread's stack holds the event that the thread waits on, and the queue (src/queue_internal.h, Swift 5.3 to 6.3).
struct DispatchQueueWait: Hashable {
    /// The busy queue: the one given, or one that it targets, directly or not.
    var queue: UInt
    /// The thread that drains it. Nil if readers of a concurrent queue do, or no thread does yet.
    var owner: Int32?
    var label: String?

    /// The event's offset in the context. Offsets around it are tried, too; only the context holds a pointer to its own start.
    private static let eventOffsets: [UInt] = [96, 88, 104, 80, 112]
    /// `dc_ctxt`, `dc_data`, `dc_other`.
    private static let (itself, hierarchy, queueOffset): (UInt, UInt, UInt) = (40, 48, 56)
    /// DISPATCH_WLH_ANON: not a workloop's.
    private static let anonymous = UInt.max - 3
    /// `do_targetq`, `dq_state`, `dq_label`.
    private static let (target, state, labelOffset): (UInt, UInt, UInt) = (24, 56, 72)
    /// Longer chains of target queues do not occur.
    private static let longestHierarchy = 16

    /// Nil if the thread does not wait in such a call, or if all of its queues are free.
    init?(_ wait: FutexWait, waiter: Int32, _ memory: LockMemory) {
        guard wait.operation == .wait, wait.expected == .max, memory.word(at: wait.address) == .max,
            memory.word(at: wait.address &+ 4).map({ FutexWait.owner(of: $0) }) == waiter,
            let context = Self.context(of: wait.address, memory),
            let first = memory.pointer(at: context &+ Self.queueOffset),
            let busy = Self.busyQueue(from: first, waiter: waiter, memory)
        else { return nil }
        (queue, owner) = (busy.queue, busy.owner)
        label = memory.pointer(at: queue &+ Self.labelOffset).flatMap(memory.label)
    }

    private static func context(of event: UInt, _ memory: LockMemory) -> UInt? {
        for offset in eventOffsets where event > offset {
            let start = event - offset
            if memory.pointer(at: start &+ itself) == start, memory.pointer(at: start &+ hierarchy) == anonymous {
                return start
            }
        }
        return nil
    }

    /// Finds the busy queue. A thread that waits for the target queue has already taken the queues before it.
    private static func busyQueue(from first: UInt, waiter: Int32, _ memory: LockMemory) -> (
        queue: UInt, owner: Int32?
    )? {
        var queue = first
        for _ in 0..<longestHierarchy where queue != 0 && queue % 8 == 0 {
            guard let state = memory.pointer(at: queue &+ state) else { return nil }
            let owner = FutexWait.owner(of: UInt32(truncatingIfNeeded: state))
            if owner != waiter {
                return (queue, owner > 0 && memory.hasThread(owner) ? owner : nil)
            }
            guard let next = memory.pointer(at: queue &+ target) else { return nil }
            queue = next
        }
        return nil
    }
}
