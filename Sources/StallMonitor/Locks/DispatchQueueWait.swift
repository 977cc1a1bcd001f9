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
