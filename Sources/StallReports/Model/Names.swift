/// The rule that made a stall out of a loop's silence.
public struct StallKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// No transition for the whole threshold while busy.
    public static let blocked = StallKind(rawValue: "blocked")
    /// Several busy spans in a row, each longer than a tick.
    public static let repeated = StallKind(rawValue: "repeated")
    /// A turn full of short callbacks that does not come to its sleep.
    public static let congested = StallKind(rawValue: "congested")
    /// One job of a task pool that lasted, though other workers may have been free: told of only if asked for, and no stall of the pool.
    public static let longJob = StallKind(rawValue: "long_job")
}

/// Where a stall stands in its life: it starts once and ends once.
public struct StallState: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The loop still stands.
    public static let ongoing = StallState(rawValue: "ongoing")
    /// The loop turned again.
    public static let recovered = StallState(rawValue: "recovered")
    /// The process ended while the loop stood.
    public static let terminated = StallState(rawValue: "terminated")
    /// The monitor stopped looking while the loop stood: it was stopped or paused, or the watch cancelled. How long the stall went
    /// on is not known.
    public static let abandoned = StallState(rawValue: "abandoned")
}

/// How much a stall matters, by its length.
public struct Severity: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Under one second, as the monitor gives it.
    public static let warning = Severity(rawValue: "warning")
    /// From one second on.
    public static let error = Severity(rawValue: "error")
    /// From five seconds on.
    public static let critical = Severity(rawValue: "critical")
}

/// Why the thread stood still.
public struct Verdict: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// It computed.
    public static let onCPU = Verdict(rawValue: "on_cpu")
    /// It waited in a system call or for a lock.
    public static let blocked = Verdict(rawValue: "blocked")
    /// It waited for a lock whose chain of owners leads back to itself.
    public static let deadlock = Verdict(rawValue: "deadlock")
    /// It could have run, and was given no processor.
    public static let starved = Verdict(rawValue: "starved")
    /// It waited for a disk, by a call or by a page fault.
    public static let diskWait = Verdict(rawValue: "disk_wait")
    /// The whole process or machine was stopped.
    public static let paused = Verdict(rawValue: "paused")
    /// The evidence does not tell.
    public static let unknown = Verdict(rawValue: "unknown")

    /// The word for a wait. Reports have `blocked` for it, which is also a kind of stall.
    public static let waiting = Verdict(rawValue: "waiting")

    /// One word for one cause, as people are told it.
    public var canonical: Verdict { self == .blocked ? .waiting : self }
}

/// What kind of thing is watched.
public struct WatchedType: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A run loop, or another loop that publishes its turns itself.
    public static let runLoop = WatchedType(rawValue: "run_loop")
    /// A loop that was found by its waits, in epoll or poll: SwiftNIO's and others. Modes and activities are not known of it.
    public static let eventLoop = WatchedType(rawValue: "event_loop")
    /// The workers that share one queue of jobs: Swift's tasks of one priority, or an executor's. Starved when none is free for too long.
    public static let taskPool = WatchedType(rawValue: "task_pool")
    /// A serial dispatch queue. Stalled when new work has to wait for too long for what is on it.
    public static let queue = WatchedType(rawValue: "queue")
}

/// Whose stack it is.
public struct StackRole: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The thread that stands still.
    public static let stalled = StackRole(rawValue: "stalled")
    /// The thread that holds the lock the stalled one waits for.
    public static let lockOwner = StackRole(rawValue: "lock_owner")
    /// Another thread of the process.
    public static let other = StackRole(rawValue: "other")
}

/// How a stack was taken.
public struct CaptureMethod: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Copied while the thread sat in a system call; the thread noticed nothing.
    public static let quiet = CaptureMethod(rawValue: "quiet")
    /// Copied by the thread itself, in a signal handler.
    public static let signal = CaptureMethod(rawValue: "signal")
    /// Copied from outside, while the thread was stopped for it.
    public static let stopped = CaptureMethod(rawValue: "stopped")
}

/// How the unwinder came to a frame.
public struct FrameOrigin: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The thread's own program counter.
    public static let programCounter = FrameOrigin(rawValue: "program_counter")
    /// The module's unwind table.
    public static let unwindTable = FrameOrigin(rawValue: "unwind_table")
    /// The instructions of the code before it, up to its return: that code has no unwind table.
    public static let instructions = FrameOrigin(rawValue: "instructions")
    /// A frame record (saved frame pointer and return address). Callers before it may be missing.
    public static let framePointer = FrameOrigin(rawValue: "frame_pointer")
    /// A search of the stack for a return address.
    public static let stackScan = FrameOrigin(rawValue: "stack_scan")
    /// The chain of suspended async callers.
    public static let asyncContext = FrameOrigin(rawValue: "async_context")
}

/// What a frame stands for, where it is no call with a place of its own on the thread's stack.
public struct FrameKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A call that the compiler replaced by the function's body. The frame after it, or the next one that is not inlined, has the
    /// same address.
    public static let inlined = FrameKind(rawValue: "inlined")
    /// An async function that waits for the one before it.
    public static let awaiting = FrameKind(rawValue: "awaiting")
}
