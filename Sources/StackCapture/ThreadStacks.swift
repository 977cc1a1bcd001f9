/// The stacks of all threads of this process, taken one after another: each is one thread's at one moment, but not all at the same.
public struct ThreadStacks: Sendable {
    /// A thread whose stack was taken.
    public struct Thread: Sendable, Hashable {
        /// The kernel's number.
        public var threadID: Int32
        /// As the kernel has it, at most 15 bytes. Empty if it could not be read.
        public var name: String
        /// `quiet` for one that slept, `signal` for one that ran.
        public var method: CapturedStack.Method
        /// The system call that it sleeps in.
        public var systemCall: SystemCall?
        /// Of this thread alone.
        public var cost: CapturedStack.Cost
    }

    /// Threads that have the same frames. Their system calls may differ in what they are given.
    public struct Group: Sendable {
        /// In the order that they were started in. Never empty.
        public var threads: [Thread]
        /// The first thread's, with its call and its cost; frames, truncation and `leftOut` are those of all.
        public var stack: CapturedStack
    }

    /// A thread without a stack.
    public struct Missing: Sendable, Hashable {
        /// The kernel's number.
        public var threadID: Int32
        /// As the kernel has it. Empty if it could not be read: it is gone.
        public var name: String
        /// Why: `notReached` if the time was up before its turn.
        public var error: CaptureError
    }

    /// Of most threads first.
    public var groups: [Group]
    /// In the order that they were started in.
    public var missing: [Missing]
    /// What all of it took.
    public var duration: Duration
}
