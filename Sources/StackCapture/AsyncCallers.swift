/// The functions that await the innermost asynchronous function on a stack. They are not on the stack themselves: an asynchronous
/// function gives its thread up when it awaits, and its callers stand behind it in a chain on the heap.
///
/// Swift's concurrency runtime has no interface for this. The chain's layout is part of the platform's ABI; each link is checked, and
/// a chain that does not lead to the first function of a running task is not believed.
public struct AsyncCallers: Sendable, Hashable {
    /// Where the chain ends.
    public enum End: Sendable, Hashable {
        /// At the first function of a task that is nobody's child: `Task { }`, `Task.detached`, or `main`.
        case task
        /// At the first function of an `async let`. Who made it is another task, and not in the chain.
        case asyncLet
        /// At the first function of a child task in a task group, likewise.
        case taskGroup
        /// There are more than 256.
        case limit
        /// It was not found; or the thread may have gone on before it was read, and how it began was not seen in time.
        case unknown
    }

    /// Where each function goes on when what it awaits is done: the start of a function of the compiler's making, often on another line
    /// than the `await`. Look it up as a resumption, not as a return address. Innermost first; empty if the frame is the task's first function.
    public var addresses: [UInt]
    /// Index of the frame, in the stack's `frames`, that the first of them awaits. The frames behind it are the executor's.
    public var frame: Int
    /// Where the chain ends.
    public var end: End
    /// The lower half of the task's number as the runtime counts: with fewer than four thousand million tasks, all of it.
    public var taskNumber: UInt32?

    /// Nothing is defaulted or checked.
    public init(addresses: [UInt], frame: Int, end: End, taskNumber: UInt32?) {
        (self.addresses, self.frame, self.end, self.taskNumber) = (addresses, frame, end, taskNumber)
    }
}
