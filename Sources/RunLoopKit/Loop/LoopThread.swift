internal import CRunLoopShims
internal import Glibc

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
