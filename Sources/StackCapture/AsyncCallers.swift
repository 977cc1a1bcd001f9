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
