import CStackCapture
import Glibc

/// A thread of a process, as `/proc/PID/task` shows it at one moment.
public struct ProcessThread: Sendable, Hashable {
    /// The kernel's number.
    public var threadID: Int32
    /// Up to 15 bytes that the program has chosen: pthread_setname_np(3). Nil if it could not be read.
    public var name: String?
    /// The kernel's letter: `R` running, `S` asleep, `D` asleep and not to be disturbed, `T` stopped, `t` stopped by a tracer, `Z`
    /// ended. Nil if it could not be read.
    public var state: Character?

    /// Nothing is checked.
    public init(threadID: Int32, name: String? = nil, state: Character? = nil) {
        self.threadID = threadID
        self.name = name
        self.state = state
    }
}

extension ProcessThread {
    /// As it is now. Name and state stay nil if there is no such thread.
    public init(threadID: Int32, ofProcess processID: Int32) {
        self.init(threadID: threadID, in: "/proc/\(processID)")
    }

    /// - Parameter directory: a `/proc/PID`.
    init(threadID: Int32, in directory: String) {
        let stat = ProcessFile("\(directory)/task/\(threadID)/stat")?.text ?? ""
        // The name stands in brackets, and may hold some itself.
        let name = stat.firstIndex(of: "(").flatMap { start in
            stat[start...].lastIndex(of: ")").map { String(stat[stat.index(after: start)..<$0]) }
        }
        let state = stat.lastIndex(of: ")").flatMap { stat[$0...].dropFirst(2).first }
        self.init(threadID: threadID, name: name, state: state)
    }

    /// - Parameter directory: a `/proc/PID`.
    /// - Returns: the numbers of its threads, the first one's first, or nil if there is no such process any more.
    static func numbers(in directory: String) -> [Int32]? {
        guard let list = unsafe opendir("\(directory)/task") else { return nil }
        defer { unsafe _ = closedir(list) }
        var numbers: [Int32] = []
        while let entry = unsafe readdir(list) {
            let name = unsafe withUnsafePointer(to: entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if let number = Int32(name) { numbers.append(number) }
        }
        return numbers.isEmpty ? nil : numbers
    }
}

/// What a capture needs to know of its target: to be taken on the thread itself.
public struct ThreadIdentity: Sendable, Hashable {
    /// The kernel's number, as `gettid` gives it.
    public var threadID: Int32
    /// Lowest address to one behind the highest.
    public var stack: Range<UInt>

    /// For bounds known from elsewhere; they are not checked. See ``current()`` for the calling thread's.
    public init(threadID: Int32, stack: Range<UInt>) {
        self.threadID = threadID
        self.stack = stack
    }

    /// The calling thread's. Take it where the heartbeat is taken, not once at the start: the main actor, for one, may move to
    /// another thread. On the process's first thread this reads `/proc/self/maps`, which is slow.
    /// Nil where the C library does not know (pthread_getattr_np(3)): out of memory, or no `/proc` on the first thread.
    public static func current() -> ThreadIdentity? {
        var low: UInt64 = 0
        var high: UInt64 = 0
        guard unsafe stackcap_own_stack(&low, &high) == 0 else { return nil }
        return ThreadIdentity(threadID: stackcap_own_thread(), stack: UInt(low)..<UInt(high))
    }
}

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
