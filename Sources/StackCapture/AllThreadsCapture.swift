import CStackCapture
import Glibc

/// Captures all threads' stacks, one after another. Until the last stack is copied, nothing is allocated except with `mmap`:
/// each thread still to be captured may hold malloc's lock. (Without optimisation Swift creates some types' metadata on first
/// use; that allocates, once.)
@unsafe struct AllThreadsCapture: ~Copyable {
    /// The state of one thread's capture. Stored in the arena; what it refers to is static.
    struct Entry {
        var outcome = Outcome.pending
        var sight = Attempt.Sight()
    }

    enum Outcome {
        case pending
        case excluded
        case kept(Int64, CapturedStack.Method, CapturedStack.Cost)
        case failed(CaptureError)
    }

    private let handle: OpaquePointer
    private let signal: Int32
    private let deadline: UInt64
    private let began = stackcap_now_ns()
    private var arena: UnsafeMutablePointer<stackcap_arena>
    private var entries: UnsafeMutableBufferPointer<Entry>

    /// - Parameter arena: Open, with room for an entry for each thread. The caller closes it when nothing of this is used any
    ///   more.
    init(handle: OpaquePointer, signal: Int32, deadline: UInt64, arena: UnsafeMutablePointer<stackcap_arena>) {
        unsafe (self.handle, self.signal, self.deadline, self.arena) = (handle, signal, deadline, arena)
        let count = unsafe arena.pointee.thread_count
        let first = unsafe arena.pointee.entries.bindMemory(to: Entry.self, capacity: count)
        unsafe entries = UnsafeMutableBufferPointer(start: first, count: count)
        unsafe entries.initialize(repeating: Entry())
    }

    /// Visits all threads once, and then repeatedly those that moved or need more time.
    func run(except excluded: Set<Int32>) {
        unsafe exclude(excluded)
        var pending = unsafe visit(entries.count)
        while unsafe pending > 0 && stackcap_now_ns() < deadline {
            unsafe Attempt.pause()
            pending = unsafe visit(pending)
        }
        unsafe giveUp()
    }

    private func exclude(_ excluded: Set<Int32>) {
        let own = stackcap_own_thread()
        for index in unsafe entries.indices {
            let thread = unsafe arena.pointee.threads[index]
            if thread == own || excluded.contains(thread) { unsafe entries[index].outcome = .excluded }
        }
    }

    /// - Returns: The number of threads still to be captured.
    private func visit(_ expected: Int) -> Int {
        var pending = 0
        for index in unsafe entries.indices {
            guard case .pending = unsafe entries[index].outcome else { continue }
            let now = stackcap_now_ns()
            if unsafe now < deadline { unsafe take(index, until: now + patience(at: now, for: expected)) }
            if case .pending = unsafe entries[index].outcome { pending += 1 }
        }
        return pending
    }

    /// How long one running thread may take to run the handler: its share of the remaining time, but at least 10 ms, because
    /// a thread may have to wait that long for a processor.
    private func patience(at now: UInt64, for threads: Int) -> UInt64 {
        unsafe max(10_000_000, (deadline - now) / UInt64(max(threads, 1)))
    }

    private func attempt(_ index: Int, until end: UInt64) -> Attempt {
        unsafe Attempt(
            handle: handle,
            signal: signal,
            target: Target(threadID: arena.pointee.threads[index], stack: 0..<0),
            arena: arena,
            deadline: min(deadline, end)
        )
    }

    private func take(_ index: Int, until end: UInt64) {
        let attempt = unsafe attempt(index, until: end)
        unsafe stackcap_arena_read_name(arena, index)
        switch unsafe attempt.copyOnce(&entries[index].sight) {
        case nil: return
        case .failure(let error): unsafe entries[index].outcome = .failed(error)
        case .success(let copied): unsafe keep(copied, index)
        }
    }

    private func keep(_ copied: Attempt.Copied, _ index: Int) {
        var unwound = unsafe stackcap_unwound()
        let outcome = unsafe stackcap_unwind(handle, &unwound)
        if let error = CaptureError(outcome) {
            unsafe entries[index].outcome = .failed(error)
            return
        }
        let cost = unsafe CapturedStack.Cost(unwound)
        let number = unsafe stackcap_arena_keep(arena, &unwound)
        unsafe entries[index].outcome =
            number < 0 ? .failed(CaptureError(.tooMuch)) : .kept(number, copied.method, cost)
    }

    private func giveUp() {
        for index in unsafe entries.indices {
            guard case .pending = unsafe entries[index].outcome else { continue }
            let sight = unsafe entries[index].sight
            let wasSeen = sight.look.state != STACKCAP_STATE_UNKNOWN
            let error =
                unsafe wasSeen
                ? attempt(index, until: deadline).failure(afterDeadlineOf: sight) : CaptureError(.notReached)
            unsafe entries[index].outcome = .failed(error)
        }
    }

    /// Builds arrays from what was kept. Allocates: all threads run again.
    consuming func result() -> ThreadStacks {
        var threads = unsafe [[ThreadStacks.Thread]](repeating: [], count: arena.pointee.stack_count)
        var missing: [ThreadStacks.Missing] = []
        for index in unsafe entries.indices {
            switch unsafe entries[index].outcome {
            case .pending, .excluded: break
            case .failed(let error):
                unsafe missing.append(.init(threadID: arena.pointee.threads[index], name: name(index), error: error))
            case .kept(let number, let method, let cost):
                unsafe threads[Int(number)].append(thread(index, method, cost))
            }
        }
        var groups = threads.indices.map { unsafe group($0, threads[$0]) }
        groups.sort { $0.threads.count > $1.threads.count }
        let duration = unsafe Duration.nanoseconds(stackcap_now_ns() &- began)
        return ThreadStacks(groups: groups, missing: missing, duration: duration)
    }

    private func name(_ index: Int) -> String {
        unsafe withUnsafeBytes(of: arena.pointee.names[index].text) { bytes in
            unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
    }

    private func thread(
        _ index: Int,
        _ method: CapturedStack.Method,
        _ cost: CapturedStack.Cost
    ) -> ThreadStacks.Thread {
        unsafe ThreadStacks.Thread(
            threadID: arena.pointee.threads[index],
            name: name(index),
            method: method,
            systemCall: method == .quiet ? SystemCall(entries[index].sight.look) : nil,
            cost: cost
        )
    }

    private func group(_ number: Int, _ threads: [ThreadStacks.Thread]) -> ThreadStacks.Group {
        let kept = unsafe arena.pointee.stacks[number]
        let frames = unsafe UnsafeBufferPointer(start: arena.pointee.frames + kept.first, count: kept.count)
        let stack = unsafe CapturedStack(
            frames: frames.map(CapturedStack.Frame.init),
            leftOut: kept.left_out > 0 ? .init(after: kept.left_out_after, count: kept.left_out) : nil,
            method: threads[0].method,
            truncation: CapturedStack.Truncation(kept.end),
            systemCall: threads[0].systemCall,
            cost: threads[0].cost
        )
        return ThreadStacks.Group(threads: threads, stack: stack)
    }
}

/// The stacks of all threads of this process, captured one after another: each stack is consistent, but they show different
/// moments.
public struct ThreadStacks: Sendable {
    /// A thread whose stack was captured.
    public struct Thread: Sendable, Hashable {
        /// The kernel's thread id.
        public var threadID: Int32
        /// The name in the kernel, at most 15 bytes. Empty if it could not be read.
        public var name: String
        /// `quiet` if it slept, `signal` if it ran.
        public var method: CapturedStack.Method
        /// The system call in which it sleeps.
        public var systemCall: SystemCall?
        /// The cost for this thread alone.
        public var cost: CapturedStack.Cost
    }

    /// Threads that have the same frames. Their system calls may have different arguments.
    public struct Group: Sendable {
        /// In the order in which they were started. Never empty.
        public var threads: [Thread]
        /// The first thread's stack, with its system call and cost; frames, truncation and `leftOut` are the same for all.
        public var stack: CapturedStack
    }

    /// A thread without a stack.
    public struct Missing: Sendable, Hashable {
        /// The kernel's thread id.
        public var threadID: Int32
        /// The name in the kernel. Empty if it could not be read, because the thread has exited.
        public var name: String
        /// The reason: `notReached` if the time limit passed before its turn.
        public var error: CaptureError
    }

    /// Sorted by number of threads, largest first.
    public var groups: [Group]
    /// In the order in which they were started.
    public var missing: [Missing]
    /// The total duration.
    public var duration: Duration
}
