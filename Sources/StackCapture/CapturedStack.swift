/// One thread's stack at one moment, as addresses in its process. Names are looked up later, from the addresses and the
/// process's modules.
public struct CapturedStack: Sendable {
    /// How the stack was copied.
    public enum Method: Sendable, Hashable {
        /// Copied from outside while the thread slept in the kernel. The thread was not affected.
        case quiet
        /// Copied by the thread itself, in a signal handler, while it ran.
        case signal
        /// Copied from outside while the thread was stopped for it. Only in another process.
        case stopped
    }

    /// One activation of a function.
    public struct Frame: Sendable, Hashable {
        /// How the unwinder found the address, and so how reliable it is.
        public enum Found: Sendable, Hashable {
            /// It is the program counter: in the innermost frame, in one that a signal has interrupted, and in one that is about
            /// to handle an exception.
            case register
            /// Found through the module's unwind table.
            case unwindTable
            /// Found by interpreting the instructions of the inner frame's code, which has no unwind table: this is its return
            /// address.
            case instructions
            /// Found through the frame pointer, past code that has no unwind table and cannot be read, or whose address range
            /// another module may have taken over. Frames in between may be missing.
            case framePointer
            /// A guess: found by scanning the stack, for a thread that slept, or for the caller of code without an unwind
            /// table.
            case scan
        }

        /// The program counter if `found` is `register`, otherwise a return address. Look a return address up at `address - 1`:
        /// the call may be its function's last instruction.
        public var address: UInt
        /// How reliable `address` is.
        public var found: Found
        /// A hash of the callee-saved registers in this frame. If two captures have the same address here and different states,
        /// the function has run on in between; if both agree, it most likely has not. Nil: not known, for example for a thread
        /// that slept.
        public var state: UInt64?

        /// Creates a frame. The values are not checked.
        public init(address: UInt, found: Found, state: UInt64? = nil) {
            (self.address, self.found, self.state) = (address, found, state)
        }
    }

    /// Why the outer frames are missing.
    public enum Truncation: Sendable, Hashable {
        /// There are so many frames that walking them took a fifth of a second.
        case timeLimit
        /// The frames lead out of the copied memory, and the rest could not be read as it was then: the thread ran on, or
        /// nothing is known about that stack.
        case copyLimit
        /// Code without an unwind table, or whose address range another module may have taken over, and without a usable frame
        /// pointer.
        case noUnwindTable
        /// The next frame is invalid: a damaged stack, or a wrong unwind table.
        case badFrame
    }

    /// Frames that are not in `frames`, because there were more than 1,024.
    public struct LeftOut: Sendable, Hashable {
        /// The number of frames before the gap.
        public var after: Int
        /// The number of frames in the gap.
        public var count: Int

        /// Creates a gap. The values are not checked.
        public init(after: Int, count: Int) {
            self.after = after
            self.count = count
        }
    }

    /// The cost of the capture.
    public struct Cost: Sendable, Hashable {
        /// How long the thread was kept in the signal handler; the kernel's delivery adds about 7 µs. 0 if it got no signal.
        /// For `stopped`, an upper bound of the time it was stopped, measured from outside.
        public var heldNanoseconds: UInt64
        /// How long the capturing thread spent on unwinding. The target runs on during that time.
        public var unwindNanoseconds: UInt64
        /// The number of bytes of the stack that were copied.
        public var bytesCopied: UInt64

        /// Creates a cost from these figures.
        public init(heldNanoseconds: UInt64, unwindNanoseconds: UInt64, bytesCopied: UInt64) {
            self.heldNanoseconds = heldNanoseconds
            self.unwindNanoseconds = unwindNanoseconds
            self.bytesCopied = bytesCopied
        }
    }

    /// Innermost first. Never empty, and at most 1,024: of a deeper stack 512 from each end.
    public var frames: [Frame]
    /// The gap between the two ends of a deep stack. If `truncation` has a reason, the outer end is where the walk stopped.
    public var leftOut: LeftOut?
    /// How it was copied. This also gives the effect on the thread: none for `quiet`, a signal handler for `signal`, a pause
    /// for `stopped`.
    public var method: Method
    /// Why frames are missing at the outer end, or nil when the last frame is the thread's first.
    public var truncation: Truncation?
    /// The system call in which the thread sleeps. Nil for a running thread, and for one that sleeps in a page fault.
    public var systemCall: SystemCall?
    /// The functions that await those on the stack. Nil if no asynchronous function is on it.
    public var asyncCallers: AsyncCallers?
    /// The total cost: if a second capture was needed to find the awaiting functions, the sum of both. Looking up names is not
    /// included.
    public var cost: Cost
    /// When the copy was made, on CLOCK_MONOTONIC in nanoseconds, if it is a late copy: see
    /// ``StackCapturer/capture(threadID:stack:since:)``. Nil if it was made just now.
    public var copiedAt: UInt64?
    /// For each frame, the stack pointer after its callee has returned. Empty if not known.
    package var stackPointers: [UInt] = []

    /// Whether the last frame is the thread's first. `leftOut` says whether frames in between are missing.
    public var isComplete: Bool { truncation == nil }

    /// Creates a stack: by default complete, without a gap, and outside a system call. `frames` must not be empty, which is not
    /// checked.
    public init(
        frames: [Frame],
        leftOut: LeftOut? = nil,
        method: Method,
        truncation: Truncation? = nil,
        systemCall: SystemCall? = nil,
        asyncCallers: AsyncCallers? = nil,
        cost: Cost
    ) {
        self.frames = frames
        self.leftOut = leftOut
        self.method = method
        self.truncation = truncation
        self.systemCall = systemCall
        self.asyncCallers = asyncCallers
        self.cost = cost
    }
}

/// The functions that await the innermost asynchronous function on a stack. They are not on the stack themselves: an
/// asynchronous function gives up its thread when it awaits, and its callers are linked in a chain on the heap.
///
/// Swift's concurrency runtime has no interface for this. The chain's layout is part of the platform's ABI. Each link is
/// checked, and a chain that does not lead to the first function of a running task is rejected.
public struct AsyncCallers: Sendable, Hashable {
    /// Where the chain ends.
    public enum End: Sendable, Hashable {
        /// At the first function of a task that is not a child task: `Task { }`, `Task.detached`, or `main`.
        case task
        /// At the first function of an `async let`. The code that started it belongs to another task and is not in the chain.
        case asyncLet
        /// At the first function of a child task in a task group, likewise.
        case taskGroup
        /// There are more than 256 functions.
        case limit
        /// It was not found; or the thread may have run on before it was read, and its beginning was not seen in time.
        case unknown
    }

    /// Where each function resumes when the function it awaits is done: the start of a compiler-generated function, often on
    /// another line than the `await`. Look it up as a resumption, not as a return address. Innermost first; empty if the frame
    /// is the task's first function.
    public var addresses: [UInt]
    /// The index, in the stack's `frames`, of the frame that the first of them awaits. The outer frames after it are the
    /// executor's.
    public var frame: Int
    /// Where the chain ends.
    public var end: End
    /// The lower half of the runtime's task number; with fewer than 2³² tasks this is the whole number.
    public var taskNumber: UInt32?

    /// Creates one from these values, which are not checked.
    public init(addresses: [UInt], frame: Int, end: End, taskNumber: UInt32?) {
        (self.addresses, self.frame, self.end, self.taskNumber) = (addresses, frame, end, taskNumber)
    }
}
