extension StallReport {
    /// A thread's stack, or the reason why there is none.
    public struct Stack: Codable, Hashable, Sendable {
        /// `stalled` for the thread that the report is about.
        public var role: StackRole
        /// For a `stalled` stack the report's own thread, as it was at detection; for a task pool, a worker.
        public var thread: Thread
        /// When it was captured; for equal stacks, the first one.
        public var capturedAt: Timestamp
        /// Nil if nothing was captured.
        public var method: CaptureMethod?
        /// The number of captures with exactly this stack; at least 1.
        public var count: Int
        /// Whether it reaches the thread's start.
        public var complete: Bool
        /// Innermost first. For a deep stack, both ends: see `leftOut`.
        public var frames: [Frame]
        /// The gap between the two ends of a deep stack. `complete` does not refer to it.
        public var leftOut: LeftOut?
        /// Why there is no stack, or why it ends early.
        public var error: String?
        /// The functions that await those on it. Nil without an asynchronous function.
        public var async: AsyncCallers?
        /// The time of the stall that its captures represent: each for the time since the one before it. Nil if it was not
        /// counted.
        public var sampledNs: Int64?
        /// The index in `frames` of the loop's own frame, for a loop that was watched from outside: it called the frames before
        /// it, and does not turn until these have returned. Nil if it is not known.
        public var loop: Int?
        /// All threads that had this stack, including `thread`. Nil for a single thread.
        public var threads: [Thread]?

        /// Creates a stack: by default a complete one of the stalled thread, captured once, without frames.
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
        /// The number of frames before the gap.
        public var after: Int
        /// The number of frames in the gap.
        public var count: Int

        /// Creates one from these values, which are not checked.
        public init(after: Int, count: Int) {
            (self.after, self.count) = (after, count)
        }
    }

    /// One call on a stack.
    public struct Frame: Codable, Hashable, Sendable {
        /// Nil for a call with its own frame on the thread's stack.
        public var kind: FrameKind?
        /// The program counter, or return address.
        public var address: Address
        /// The index in the report's `modules`.
        public var module: Int?
        /// `address` in the module's file (address − load base): with the build id, enough to symbolicate the frame later.
        public var offset: Address?
        /// Demangled, without types, for display. Nil if there is no symbol.
        public var function: String?
        /// The name in the symbol table.
        public var symbol: String?
        /// The offset of `address` in the function.
        public var functionOffset: Address?
        /// The source file as recorded by the compiler: usually a path on the build machine. Nil without debug information.
        public var file: String?
        /// From 1: the line of `address`; for a return address, that of the call; for an inlined function, that of the next
        /// inner call.
        public var line: Int?
        /// From 1, in bytes. Nil if the compiler recorded none.
        public var column: Int?
        /// Whether it is the server's own code, not that of a library or the system.
        public var own: Bool
        /// How `address` was found, and so how reliable it is. Nil if the writer did not record it.
        public var foundBy: FrameOrigin?

        /// Creates a frame: by default in no module, without a name, and not `own`.
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

    /// An executable or library that contains frames.
    public struct Module: Codable, Hashable, Sendable {
        /// The kernel's path (proc(5), `maps`), without the mark of a deleted file. `[vdso]` for the kernel's own.
        public var path: String
        /// The GNU build id, in hexadecimal.
        public var buildID: String?
        /// The offset added to the file's own addresses. 0 for an executable that is not position-independent.
        public var loadBase: Address

        /// Creates a module, by default without a build id.
        public init(path: String, buildID: String? = nil, loadBase: Address) {
            (self.path, self.buildID, self.loadBase) = (path, buildID, loadBase)
        }

        private enum CodingKeys: String, CodingKey {
            case path
            case buildID = "build_id"
            case loadBase = "load_base"
        }
    }

    /// The functions that await an asynchronous function of a stack. They are not on the stack: each has given up its thread.
    public struct AsyncCallers: Codable, Hashable, Sendable {
        /// The index, in the stack's `frames`, of the frame that the first of them awaits. The frames after it are the
        /// executor's.
        public var from: Int
        /// Innermost first. `address` is where the function resumes: the start of a function, not a return address.
        public var frames: [Frame]
        /// Where the chain ends.
        public var ends: AsyncEnd
        /// The task's number, as counted by the Swift runtime.
        public var task: UInt64?

        /// Creates callers, by default without a task. It is not checked that `from` fits the stack.
        public init(from: Int, frames: [Frame], ends: AsyncEnd, task: UInt64? = nil) {
            (self.from, self.frames, self.ends, self.task) = (from, frames, ends, task)
        }
    }
}

extension StallReport.Stack {
    /// A frame and all its callers, the innermost first: those on the stack, and after an asynchronous function those that
    /// await it. The frames that follow on the stack are an executor's.
    public func callers(from frame: Int) -> [StallReport.Frame] {
        guard let async, (0...max(0, async.from)).contains(frame), frames.indices.contains(async.from) else {
            return Array(frames.dropFirst(max(0, frame)))
        }
        return frames[frame...async.from] + async.frames
    }
}

extension StallReport {
    /// The stacks of the stalled thread, each with its part of the stall's time. Empty without a stack.
    ///
    /// The parts are as long as the times that the stacks' captures represent, and not as many as the captures: these do not come at equal
    /// intervals. If no time was counted, as in reports of other writers, the captures are: they are all that is known of how long a stack was
    /// there. Whatever merges stacks uses this, so that a stack is equally wide on all pages and in all exported formats.
    package var stalledParts: [(stack: Stack, nanoseconds: Int64)] {
        let stalled = stacks.filter { $0.role == .stalled }
        let times = stalled.map { max(0, $0.sampledNs ?? 0) }
        let weights = times.contains { $0 > 0 } ? times : stalled.map { Int64(clamping: max(1, $0.count)) }
        let sum = Double(max(1, weights.saturatingSum()))
        return zip(stalled, weights).map { stack, weight in
            (stack, Int64(saturating: Double(max(0, durationNs)) * (Double(weight) / sum)))
        }
    }
}

extension StallReport.Frame {
    /// Where the function begins, or the frame's own place if that is unknown: in the module's file, without a module in memory.
    package var functionStart: Address {
        let place = offset ?? address
        return functionOffset.map { Address(place.rawValue &- $0.rawValue) } ?? place
    }
}

extension [StallReport.Module] {
    /// The frame's module. Nil for a frame in none, and for an index that only a damaged report has.
    package func module(of frame: StallReport.Frame) -> StallReport.Module? {
        frame.module.flatMap { indices.contains($0) ? self[$0] : nil }
    }
}

/// Where a chain of awaiting functions ends.
public struct AsyncEnd: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// At the first function of a task that is not a child task.
    public static let task = AsyncEnd(rawValue: "task")
    /// At the first function of an `async let`.
    public static let asyncLet = AsyncEnd(rawValue: "async_let")
    /// At the first function of a child task in a task group.
    public static let taskGroup = AsyncEnd(rawValue: "task_group")
    /// There are more than a report contains.
    public static let limit = AsyncEnd(rawValue: "limit")
    /// It could not be followed.
    public static let unknown = AsyncEnd(rawValue: "unknown")
}
