/// One thread's stack at one moment, as addresses of its process. Names are found later, from these and the process's modules.
public struct CapturedStack: Sendable {
    /// How the stack was copied.
    public enum Method: Sendable, Hashable {
        /// From outside, while the thread slept in the kernel. The thread did not notice.
        case quiet
        /// By the thread itself, in a signal handler, while it ran.
        case signal
        /// From outside, while the thread was stopped for it. Only in another process.
        case stopped
    }

    /// One activation of a function.
    public struct Frame: Sendable, Hashable {
        /// How the unwinder came upon the address: how far to trust it.
        public enum Found: Sendable, Hashable {
            /// It is the program counter.
            case register
            /// The module's unwind table led here.
            case unwindTable
            /// The instructions of the code before led here: it has no unwind table, and this is what it returns to.
            case instructions
            /// The frame pointer led here, past code without an unwind table that cannot be read, or that another module may have taken the place
            /// of. Frames in between may be missing.
            case framePointer
            /// A guess led here: a search of the stack, for a thread that slept, or for the caller of code without an unwind table.
            case scan
        }

        /// The program counter in the innermost frame, the return address in the others. Look a return address up at
        /// `address - 1`: the call may be its function's last instruction.
        public var address: UInt
        /// How far to trust `address`. Only the innermost frame has `register`.
        public var found: Found
        /// What the function keeps in registers while it calls another, as a hash. Where two captures have the same address here and
        /// another state, the function has run on in between; where both agree, it most likely has not. Nil: not known, as of a thread
        /// that slept.
        public var state: UInt64?

        /// Without a state unless given; nothing is checked.
        public init(address: UInt, found: Found, state: UInt64? = nil) {
            (self.address, self.found, self.state) = (address, found, state)
        }
    }

    /// Why the outer frames are missing.
    public enum Truncation: Sendable, Hashable {
        /// There are so many frames that walking them took a fifth of a second.
        case timeLimit
        /// The frames lead out of what was copied, and the rest could not be read as it was then: of a thread that ran on, or on a stack that
        /// nothing is known of.
        case copyLimit
        /// Code without an unwind table, or that another module may have taken the place of, and no usable frame pointer there.
        case noUnwindTable
        /// The next frame makes no sense: a damaged stack, or a wrong unwind table.
        case badFrame
    }

    /// Frames that are not in `frames`, since there were more than 1,024 of them.
    public struct LeftOut: Sendable, Hashable {
        /// They were between the first so many frames and the others.
        public var after: Int
        /// How many they were.
        public var count: Int

        /// Nothing is defaulted or checked.
        public init(after: Int, count: Int) {
            self.after = after
            self.count = count
        }
    }

    /// What the capture cost.
    public struct Cost: Sendable, Hashable {
        /// How long the thread was kept in the signal handler; the kernel's delivery comes on top, about 7 µs. 0 if it got no
        /// signal. For `stopped` how long it stood at most, seen from outside.
        public var heldNanoseconds: UInt64
        /// How long the capturing thread spent on unwinding. The target runs on meanwhile.
        public var unwindNanoseconds: UInt64
        /// How much of the stack was copied.
        public var bytesCopied: UInt64

        /// Nothing is defaulted.
        public init(heldNanoseconds: UInt64, unwindNanoseconds: UInt64, bytesCopied: UInt64) {
            self.heldNanoseconds = heldNanoseconds
            self.unwindNanoseconds = unwindNanoseconds
            self.bytesCopied = bytesCopied
        }
    }

    /// Innermost first. Never empty, and at most 1,024: of a deeper stack 512 from each end.
    public var frames: [Frame]
    /// What is missing between the two ends of a deep stack. Where `truncation` has a reason, the outer of the ends is as far as the
    /// walk came.
    public var leftOut: LeftOut?
    /// Also says what the thread noticed: nothing if `quiet`, a signal handler if `signal`, a pause if `stopped`.
    public var method: Method
    /// Why frames are missing at the outer end, or nil when the last frame is the thread's first.
    public var truncation: Truncation?
    /// The system call that the thread sleeps in. Nil for a running thread, and for one that sleeps in a page fault.
    public var systemCall: SystemCall?
    /// Who awaits the functions on the stack. Nil if no asynchronous function is on it.
    public var asyncCallers: AsyncCallers?
    /// Of all it took: where only a second look could show the awaiting functions, of both. Finding names comes on top.
    public var cost: Cost
    /// When the copy was made, of CLOCK_MONOTONIC in nanoseconds, if that was long ago: see
    /// ``StackCapturer/capture(threadID:stack:since:)``. Nil for just now.
    public var copiedAt: UInt64?
    /// Of each frame, the stack pointer as it stands there once what it calls has returned. Empty: not told.
    package var stackPointers: [UInt] = []

    /// Whether the last frame is the thread's first. `leftOut` says whether all between are there.
    public var isComplete: Bool { truncation == nil }

    /// Complete, without gap and outside a system call unless said otherwise. That `frames` is not empty is not checked.
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
