extension StallReport {
    /// The functions that await an asynchronous function of a stack. They are not on the stack: each has given its thread up.
    public struct AsyncCallers: Codable, Hashable, Sendable {
        /// Index of the frame, in the stack's `frames`, that the first of them awaits. The frames behind it are the executor's.
        public var from: Int
        /// Innermost first. `address` is where the function goes on: the start of a function, not a return address.
        public var frames: [Frame]
        /// Where the chain ends.
        public var ends: AsyncEnd
        /// The task's number, as the Swift runtime counts them.
        public var task: UInt64?

        /// Without a task unless given. That `from` fits the stack is not checked.
        public init(from: Int, frames: [Frame], ends: AsyncEnd, task: UInt64? = nil) {
            (self.from, self.frames, self.ends, self.task) = (from, frames, ends, task)
        }
    }
}

extension StallReport.Stack {
    /// A frame and all that called it, the innermost first: on the stack, and below an asynchronous function what awaits it. What lies
    /// behind that on the stack is an executor's.
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
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// At the first function of a task that is nobody's child.
    public static let task = AsyncEnd(rawValue: "task")
    /// At the first function of an `async let`.
    public static let asyncLet = AsyncEnd(rawValue: "async_let")
    /// At the first function of a child task in a task group.
    public static let taskGroup = AsyncEnd(rawValue: "task_group")
    /// There are more than a report holds.
    public static let limit = AsyncEnd(rawValue: "limit")
    /// It could not be followed.
    public static let unknown = AsyncEnd(rawValue: "unknown")
}
