extension StallReport {
    /// A thread's stack, or the reason why there is none.
    public struct Stack: Codable, Hashable, Sendable {
        /// `stalled` for the thread that the report is about.
        public var role: StackRole
        /// For a `stalled` stack the report's own thread, as it was at detection; of a task pool, a worker.
        public var thread: Thread
        /// When it was taken; of equal stacks, the first that was added.
        public var capturedAt: Timestamp
        /// Nil when nothing was captured.
        public var method: CaptureMethod?
        /// Captures that gave exactly this stack; at least 1.
        public var count: Int
        /// Whether it reaches the thread's start.
        public var complete: Bool
        /// Innermost first. Of a deep stack, both ends: see `leftOut`.
        public var frames: [Frame]
        /// The gap between the two ends of a deep stack. `complete` says nothing of it.
        public var leftOut: LeftOut?
        /// Why there is no stack, or why it ends early.
        public var error: String?
        /// Who awaits the functions on it. Nil without an asynchronous function.
        public var async: AsyncCallers?
        /// How much of the stall its captures stand for: each for the time since the one before it. Nil when nobody counted.
        public var sampledNs: Int64?
        /// Which frame is the loop's own, of a loop that was watched from outside: it called those before it, and turns no further before these
        /// have returned. Index into `frames`; nil where it is not known.
        public var loop: Int?
        /// All threads that had this stack, `thread` among them. Nil for one thread's.
        public var threads: [Thread]?

        /// A complete stack of the stalled thread, captured once, without frames, unless said otherwise.
        public init(
            role: StackRole = .stalled,
            thread: Thread,
            capturedAt: Timestamp,
            method: CaptureMethod? = nil,
            count: Int = 1,
            complete: Bool = true,
            frames: [Frame] = [],
            leftOut: LeftOut? = nil,
            error: String? = nil,
            async: AsyncCallers? = nil,
            sampledNs: Int64? = nil,
            threads: [Thread]? = nil
        ) {
            (self.role, self.thread, self.capturedAt, self.method) = (role, thread, capturedAt, method)
            (self.count, self.complete, self.frames, self.error) = (count, complete, frames, error)
            (self.leftOut, self.async) = (leftOut, async)
            (self.sampledNs, self.threads) = (sampledNs, threads)
        }

        private enum CodingKeys: String, CodingKey {
            case role, thread
            case capturedAt = "captured_at"
            case method, count, complete, frames
            case leftOut = "left_out"
            case error, async
            case sampledNs = "sampled_ns"
            case loop, threads
        }
    }

    /// Frames of a deep stack that are not in the report.
    public struct LeftOut: Codable, Hashable, Sendable {
        /// They were between the first so many frames and the others.
        public var after: Int
        /// How many they were.
        public var count: Int

        /// Nothing is defaulted or checked.
        public init(after: Int, count: Int) {
            (self.after, self.count) = (after, count)
        }
    }

    /// One call on a stack.
    public struct Frame: Codable, Hashable, Sendable {
        /// Nil for a call with a frame of its own on the thread's stack.
        public var kind: FrameKind?
        /// The program counter, or return address.
        public var address: Address
        /// Index into the report's `modules`.
        public var module: Int?
        /// `address` as the module's file counts (address − load base): with the build id, enough to name the frame later.
        public var offset: Address?
        /// For people: demangled, without types. Nil when there is no symbol.
        public var function: String?
        /// The name as the symbol table has it.
        public var symbol: String?
        /// `address` from the function's start.
        public var functionOffset: Address?
        /// The source file, as the compiler wrote it down: usually a path on the machine that built it. Nil without debug information.
        public var file: String?
        /// From 1: where `address` lies, for a return address the call, for an inlined function the next call inwards.
        public var line: Int?
        /// From 1, in bytes. Nil if the compiler gave none.
        public var column: Int?
        /// Whether it is the server's own code, not a library's or the system's.
        public var own: Bool
        /// How far to trust `address`. Nil when the writer did not say.
        public var foundBy: FrameOrigin?

        /// In no module, without a name, and not `own`, unless given.
        public init(
            kind: FrameKind? = nil,
            address: Address,
            module: Int? = nil,
            offset: Address? = nil,
            function: String? = nil,
            symbol: String? = nil,
            functionOffset: Address? = nil,
            file: String? = nil,
            line: Int? = nil,
            column: Int? = nil,
            own: Bool = false,
            foundBy: FrameOrigin? = nil
        ) {
            (self.kind, self.address, self.module, self.offset) = (kind, address, module, offset)
            (self.function, self.symbol, self.functionOffset) = (function, symbol, functionOffset)
            (self.file, self.line, self.column) = (file, line, column)
            (self.own, self.foundBy) = (own, foundBy)
        }

        private enum CodingKeys: String, CodingKey {
            case kind, address, module, offset, function, symbol
            case functionOffset = "function_offset"
            case file, line, column, own
            case foundBy = "found_by"
        }
    }

    /// An executable or library that frames lie in.
    public struct Module: Codable, Hashable, Sendable {
        /// As the kernel names it (proc(5), `maps`), without the mark of a deleted file. `[vdso]` for its own.
        public var path: String
        /// The GNU build id, in hexadecimal.
        public var buildID: String?
        /// What was added to the file's own addresses. 0 for an executable that is not position-independent.
        public var loadBase: Address

        /// Without a build id unless given.
        public init(path: String, buildID: String? = nil, loadBase: Address) {
            (self.path, self.buildID, self.loadBase) = (path, buildID, loadBase)
        }

        private enum CodingKeys: String, CodingKey {
            case path
            case buildID = "build_id"
            case loadBase = "load_base"
        }
    }

    /// The frame to look at first: the own function that was on the stack for longest, and among equals the innermost.
    public struct Culprit: Codable, Hashable, Sendable {
        /// For people, as in the frame pointed at. Nil when that has no name.
        public var function: String?
        /// Mangled, as in the frame pointed at. Nil when that has none.
        public var symbol: String?
        /// The Swift module whose source it stands in. Nil for other languages.
        public var module: String?
        /// As in the frame pointed at.
        public var file: String?
        /// As in the frame pointed at.
        public var line: Int?
        /// Index into the report's `stacks`.
        public var stack: Int
        /// Index into that stack's `frames`, or into those of its awaiting functions.
        public var frame: Int
        /// Whether `frame` counts in the functions that await (`async.frames`). Nil is no.
        public var isAwaiting: Bool?

        /// Without names unless given. That the indices fit the report is not checked.
        public init(
            function: String? = nil,
            symbol: String? = nil,
            module: String? = nil,
            file: String? = nil,
            line: Int? = nil,
            stack: Int,
            frame: Int,
            isAwaiting: Bool? = nil
        ) {
            (self.function, self.symbol, self.module) = (function, symbol, module)
            (self.file, self.line) = (file, line)
            (self.stack, self.frame, self.isAwaiting) = (stack, frame, isAwaiting)
        }

        private enum CodingKeys: String, CodingKey {
            case function, symbol, module, file, line, stack, frame
            case isAwaiting = "awaiting"
        }
    }
}
