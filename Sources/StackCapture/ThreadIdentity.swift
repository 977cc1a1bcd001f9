import CStackCapture

/// What a capture needs to know of its target: to be taken on the thread itself.
public struct ThreadIdentity: Sendable, Hashable {
    /// The kernel's number, as `gettid` gives it.
    public var threadID: Int32
    /// Lowest address to one behind the highest.
    public var stack: Range<UInt>

    /// For bounds known from elsewhere; they are not checked. See ``current()`` for the calling thread's.
    public init(threadID: Int32, stack: Range<UInt>) {
        self.threadID = threadID
        self.stack = stack
    }

    /// The calling thread's. Take it where the heartbeat is taken, not once at the start: the main actor, for one, may move to
    /// another thread. On the process's first thread this reads `/proc/self/maps`, which is slow.
    /// Nil where the C library does not know (pthread_getattr_np(3)): out of memory, or no `/proc` on the first thread.
    public static func current() -> ThreadIdentity? {
        var low: UInt64 = 0
        var high: UInt64 = 0
        guard unsafe stackcap_own_stack(&low, &high) == 0 else { return nil }
        return ThreadIdentity(threadID: stackcap_own_thread(), stack: UInt(low)..<UInt(high))
    }
}
