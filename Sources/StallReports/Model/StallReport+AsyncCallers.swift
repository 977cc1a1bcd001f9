extension StallReport {
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

        /// Without a task by default. It is not checked that `from` fits the stack.
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
