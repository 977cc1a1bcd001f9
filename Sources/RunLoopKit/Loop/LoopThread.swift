import CRunLoopShims
import Glibc
import Locking
import Synchronization

/// The thread of a loop, as the kernel and a reader of stacks identify it.
public struct LoopThread: Sendable, Hashable {
    /// The kernel's thread id.
    public let id: Int32
    /// The addresses of its stack without the guard page; `upperBound` is where the stack begins. On the main thread the lower
    /// part is mapped only as the stack grows, and with an unlimited stack is very far away. Empty if the bounds cannot be
    /// determined.
    public let stack: Range<UInt>

    /// Describes a thread that is known from elsewhere. Nothing is checked: if the thread does not exist or the bounds are
    /// wrong, no stack can be captured, and nothing worse happens.
    public init(id: Int32, stack: Range<UInt>) { (self.id, self.stack) = (id, stack) }
}

extension LoopThread {
    /// The calling thread. Takes some microseconds; on the main thread it reads a file of /proc.
    public static func current() -> LoopThread {
        LoopThread(id: run_loop_current_tid(), pthread: pthread_self())
    }

    /// The main thread, if its pthread_t was seen: always, unless this library was loaded by another thread with dlopen.
    static func main() -> LoopThread? {
        mainPthread.map { LoopThread(id: run_loop_main_tid(), pthread: $0) }
    }

    static var mainPthread: pthread_t? {
        var thread = pthread_t()
        return unsafe run_loop_main_pthread(&thread) ? thread : nil
    }

    private init(id: Int32, pthread: pthread_t) {
        var low: UInt = 0
        var high: UInt = 0
        let error = unsafe run_loop_stack_bounds(pthread, &low, &high)
        self.init(id: id, stack: error == 0 && low < high ? low..<high : 0..<0)
    }

    /// The thread's current name in the kernel; nil after it ended.
    package var name: String? {
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16) { buffer in
            guard let start = buffer.baseAddress, unsafe run_loop_thread_name(id, start) else { return nil }
            return unsafe String(cString: start)
        }
    }
}

/// Maps threads to their loops (R1).
enum LoopRegistry {
    static let main = EventRunLoop(main: true)

    static var current: EventRunLoop {
        if run_loop_is_main_thread() { return main }
        return existing ?? make()
    }

    /// The calling thread's loop, if it has one. Not for the main thread.
    static var existing: EventRunLoop? {
        guard let stored = unsafe pthread_getspecific(key) else { return nil }
        return unsafe Unmanaged<EventRunLoop>.fromOpaque(stored).takeUnretainedValue()
    }

    /// Ends the calling thread's loop now instead of at the thread's end. Not for the main thread.
    static func endExisting() {
        guard let loop = existing else { return }
        unsafe end(Unmanaged.passUnretained(loop))
    }

    private static func make() -> EventRunLoop {
        let loop = EventRunLoop(main: false)
        unsafe store(Unmanaged.passRetained(loop).toOpaque())
        return loop
    }

    private static func store(_ value: UnsafeMutableRawPointer?) {
        let failure = unsafe pthread_setspecific(key, value)
        require(failure == 0, "pthread_setspecific: errno \(failure); the process is out of memory")
    }

    /// The key of the threads' slots for their loops. The C library calls the destructor on each thread that ends with a loop.
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let failure = unsafe pthread_key_create(&key) { stored in
            guard let stored = unsafe stored else { return }
            unsafe LoopRegistry.end(Unmanaged<EventRunLoop>.fromOpaque(stored))
        }
        require(failure == 0, "pthread_key_create: errno \(failure); no thread-specific keys left")
        return key
    }()

    private static func end(_ loop: Unmanaged<EventRunLoop>) {
        // The slot is empty by now. Cancel callbacks that request the current loop must get this one, not a new one.
        unsafe store(loop.toOpaque())
        unsafe loop.takeUnretainedValue().end()
        unsafe store(nil)
        unsafe loop.release()
    }
}

// MARK: - After a fork

// A forked child has one thread: a copy of the one that called fork. That thread's loop continues there, with epoll sets of its
// own: changing the inherited sets would change the parent's. The threads of the other loops do not exist in the child, and
// their locks may be held forever. Such a loop accepts nothing, like one whose thread has ended (R3).

extension EventRunLoop {
    /// Whether the loop's thread does not exist in this process because of a fork. Takes no lock.
    var isOfParent: Bool {
        guard generation.load(ordering: .relaxed) != run_loop_generation() else { return false }
        // Only the main loop of a process that loaded this library late has no pthread_t; then only the main thread
        // itself can answer.
        return pthread.map { !run_loop_survived_fork($0) } ?? !run_loop_is_main_thread()
    }

    /// The loop's thread as it is in this process.
    var ownThread: LoopThread? {
        if generation.load(ordering: .relaxed) != run_loop_generation(), isOnOwnThread { noteThreadAfterFork() }
        return owner.withLock { $0.thread }
    }

    /// The thread has a new thread id in the child. The loop's thread.
    func noteThreadAfterFork() {
        generation.store(run_loop_generation(), ordering: .relaxed)
        owner.withLock { $0.thread = .current() }
    }
}
