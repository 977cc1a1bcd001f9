/// How a stall looked: the rule by which it was found.
public struct StallKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The loop was busy and made no transition for the whole threshold.
    public static let blocked = StallKind(rawValue: "blocked")
    /// Several turns in a row, each longer than a number of ticks (one by default).
    public static let repeated = StallKind(rawValue: "repeated")
    /// A turn full of short callouts, in which the loop neither sleeps nor polls for new events.
    public static let congested = StallKind(rawValue: "congested")
    /// One job of a task pool that took long, while other workers may have been free: reported only on request, and not a stall
    /// of the pool.
    public static let longJob = StallKind(rawValue: "long_job")

    /// Those of this version.
    package static let known: [StallKind] = [.blocked, .repeated, .congested, .longJob]
}

/// The state of a stall: it starts once and ends once.
public struct StallState: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The loop is still stalled.
    public static let ongoing = StallState(rawValue: "ongoing")
    /// The loop turned again.
    public static let recovered = StallState(rawValue: "recovered")
    /// The process ended while the loop was stalled.
    public static let terminated = StallState(rawValue: "terminated")
    /// The monitor stopped sampling while the loop was stalled: it was stopped or paused, or the watch was cancelled. The
    /// remaining duration is not known.
    public static let abandoned = StallState(rawValue: "abandoned")

    /// Those of this version.
    package static let known: [StallState] = [.ongoing, .recovered, .terminated, .abandoned]
}

/// How serious a stall is, by its duration.
public struct Severity: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Under one second.
    public static let warning = Severity(rawValue: "warning")
    /// From one second on.
    public static let error = Severity(rawValue: "error")
    /// From five seconds on.
    public static let critical = Severity(rawValue: "critical")

    /// Those of this version, the worst last.
    package static let known: [Severity] = [.warning, .error, .critical]

    /// The severity of a stall of this length.
    package init(duration: Duration) {
        self = Self.known.last { duration >= .nanoseconds($0.leastNs) } ?? .warning
    }

    /// The shortest stall of this severity, in nanoseconds: users notice one second, and leave after five.
    package var leastNs: Int64 {
        switch self {
        case .critical: 5_000_000_000
        case .error: 1_000_000_000
        default: 0
        }
    }

    /// A greater rank is worse. An unknown severity ranks highest, so that it is not missed.
    package var rank: Int { Self.known.firstIndex(of: self) ?? Self.known.count }
}

/// Why the thread was stalled.
public struct Verdict: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// It computed.
    public static let onCPU = Verdict(rawValue: "on_cpu")
    /// It waited in a system call or for a lock.
    public static let blocked = Verdict(rawValue: "blocked")
    /// It waited for a lock whose chain of owners leads back to itself.
    public static let deadlock = Verdict(rawValue: "deadlock")
    /// It was runnable and got no processor.
    public static let starved = Verdict(rawValue: "starved")
    /// It waited for a disk, in a call or in a page fault.
    public static let diskWait = Verdict(rawValue: "disk_wait")
    /// It was stopped by a signal or a debugger.
    public static let paused = Verdict(rawValue: "paused")
    /// The evidence does not show it.
    public static let unknown = Verdict(rawValue: "unknown")

    /// The term for a wait. Reports use `blocked` for it, which is also a kind of stall.
    public static let waiting = Verdict(rawValue: "waiting")

    /// Those of this version, by the names that are shown to users.
    package static let known: [Verdict] = [.onCPU, .waiting, .deadlock, .starved, .diskWait, .paused, .unknown]

    /// The name of the verdict that is shown to users.
    public var canonical: Verdict { self == .blocked ? .waiting : self }
}

/// The type of a watched loop.
public struct WatchedType: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A run loop, or another loop that publishes its turns itself.
    public static let runLoop = WatchedType(rawValue: "run_loop")
    /// A loop that was found by its waits in epoll or poll: SwiftNIO's and others. Its modes and activities are not known.
    public static let eventLoop = WatchedType(rawValue: "event_loop")
    /// The workers that share one queue of jobs: Swift's tasks of one priority, or an executor's. Starved if no worker is free
    /// for too long.
    public static let taskPool = WatchedType(rawValue: "task_pool")
    /// A serial dispatch queue. Stalled if new work has to wait too long for the work on it.
    public static let queue = WatchedType(rawValue: "queue")

    /// Those of this version.
    package static let known: [WatchedType] = [.runLoop, .eventLoop, .taskPool, .queue]
}

/// The role of a stack's thread.
public struct StackRole: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The stalled thread.
    public static let stalled = StackRole(rawValue: "stalled")
    /// The thread that holds the lock for which the stalled one waits.
    public static let lockOwner = StackRole(rawValue: "lock_owner")
    /// Another thread of the process.
    public static let other = StackRole(rawValue: "other")
}

/// How a stack was captured.
public struct CaptureMethod: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Copied while the thread was in a system call; the thread was not affected.
    public static let quiet = CaptureMethod(rawValue: "quiet")
    /// Copied by the thread itself, in a signal handler.
    public static let signal = CaptureMethod(rawValue: "signal")
    /// Copied from outside, while the thread was stopped for it.
    public static let stopped = CaptureMethod(rawValue: "stopped")
}

/// How the unwinder found a frame.
public struct FrameOrigin: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The program counter: the thread's own, or that of code which a signal has interrupted. The others are return addresses.
    public static let programCounter = FrameOrigin(rawValue: "program_counter")
    /// The module's unwind table.
    public static let unwindTable = FrameOrigin(rawValue: "unwind_table")
    /// The instructions of the inner frame's code, up to its return: that code has no unwind table.
    public static let instructions = FrameOrigin(rawValue: "instructions")
    /// A frame record (saved frame pointer and return address). Frames before it may be missing.
    public static let framePointer = FrameOrigin(rawValue: "frame_pointer")
    /// A search of the stack for a return address.
    public static let stackScan = FrameOrigin(rawValue: "stack_scan")
    /// The chain of suspended async callers.
    public static let asyncContext = FrameOrigin(rawValue: "async_context")
}

/// The kind of a frame that is not a call with its own frame on the thread's stack.
public struct FrameKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A call that the compiler replaced by the function's body. The frame after it, or the next one that is not inlined, has
    /// the same address.
    public static let inlined = FrameKind(rawValue: "inlined")
    /// An async function that awaits the one before it.
    public static let awaiting = FrameKind(rawValue: "awaiting")
}
