import CRunLoopShims
import Glibc
import Locking
import Synchronization

/// A thread that runs its loop's default mode from its start until it is stopped, also while there is nothing to do. Give it
/// work through its ``loop``. Any thread, including the worker itself, may call any member unless it says otherwise.
///
/// It blocks signals sent to the process, so that they reach the threads that handle them. Signals that a thread causes itself,
/// and SIGPROF, keep the mask of the thread that started it. It never blocks SIGURG, which wakes a loop whose descriptors a program
/// has closed.
/// Stack size and scheduling are the process's defaults; the stack is no smaller than 1 MiB.
///
/// When the last reference is released, the worker is stopped without a drain, and no thread waits for it. Its own thread does
/// not hold a reference.
///
/// In a forked child the parent's workers have no thread: they count as ended. (A worker that has called fork itself goes on there.)
public final class WorkerThread: Sendable {
    /// The loop. It ends with the thread.
    public let loop: EventRunLoop
    /// The name in the kernel, `ps -L` and captured stacks: up to 15 bytes of the requested name.
    public let name: String
    private let life: WorkerLife
    /// Nil once joined.
    private let handle: ForkSafeMutex<pthread_t?>

    /// Starts a thread, and returns when its loop exists.
    ///
    /// - Parameter name: Of any length. The kernel keeps 15 bytes of it, so put the distinguishing part first. A character that
    ///   does not fit is left out whole.
    /// - Throws: `threadNotStarted` if the system cannot start a thread.
    public init(name: String) throws(RunLoopError) {
        let name = WorkerThread.kernelName(name)
        let life = WorkerLife()
        handle = ForkSafeMutex(try WorkerThread.start(life, name: name))
        loop = life.awaitLoop()
        self.name = name
        self.life = life
    }

    deinit {
        if loop.isOfParent { return }
        life.stop(draining: false)
        if let thread = handle.withLock({ $0.take() }) { pthread_detach(thread) }
    }

    /// Ends the thread as soon as the loop's current turn is over, together with every run of a common mode that is nested in
    /// it; one that begins later ends after one turn. A run that awaits a port's reply goes on until the reply. Does not wait. Not in a
    /// signal handler. Work that it has not reached is released; a caller that waits for a request
    /// gets `loopEnded`. Stopping again has no effect.
    ///
    /// - Parameter draining: Makes one more pass, which does what is then queued for the default mode: blocks, requests,
    ///   signalled sources. It also takes effect if the worker was stopped before and is still running.
    public func stop(draining: Bool = false) {
        if !loop.isOfParent { life.stop(draining: draining) }
    }

    /// Waits until the thread has ended. Traps if called from the worker itself. Does not stop it.
    ///
    /// - Parameter timeout: Nil for no limit. The time that destructors of thread-specific data take is not counted.
    /// - Returns: Whether it has ended.
    @available(*, noasync, message: "It blocks the thread.")
    @discardableResult
    public func join(timeout: Duration? = nil, file: StaticString = #fileID, line: UInt = #line) -> Bool {
        require(!loop.isOnOwnThread, "A worker cannot wait for its own end.", file: file, line: line)
        if loop.isOfParent { return true }
        guard loop.ended.wait(until: .after(timeout)) else { return false }
        // The loop has ended, and the thread is about to. Under the lock, so that all joining threads return after that.
        handle.withLock { thread in
            if let ended = thread.take() { pthread_join(ended, nil) }
        }
        return true
    }

    /// Whether the loop and its thread have ended.
    public var hasEnded: Bool { loop.ended.isOpen || loop.isOfParent }

    /// The kernel refuses longer names (pthread_setname_np(3)). Cut between Unicode scalars, because programs that show it read
    /// UTF-8.
    private static func kernelName(_ name: String) -> String {
        var kept = name
        while kept.utf8.count > 15 { kept.unicodeScalars.removeLast() }
        return kept
    }

    private static func start(_ life: WorkerLife, name: String) throws(RunLoopError) -> pthread_t {
        var thread = pthread_t()
        let context = unsafe Unmanaged.passRetained(life)
        let failure = unsafe run_loop_start_worker(
            &thread,
            name,
            { context in unsafe Unmanaged<WorkerLife>.fromOpaque(context).takeRetainedValue().live() },
            context.toOpaque()
        )
        guard failure == 0 else {
            unsafe context.release()
            throw RunLoopError(.threadNotStarted, errno: failure)
        }
        return thread
    }
}

/// The state shared by a worker and its thread. The thread retains it until it ends.
private final class WorkerLife: Sendable {
    private enum Request {
        static let stop: UInt8 = 1
        static let drain: UInt8 = 2
    }

    private let requests = Atomic<UInt8>(0)
    private let loop = ForkSafeMutex<EventRunLoop?>(nil)
    private let started = Latch(.workerStart)
    /// Keeps the default mode from being empty.
    private let keeper = EventSource { _ in }

    func awaitLoop() -> EventRunLoop {
        _ = started.wait()
        guard let loop = loop.withLock({ $0 }) else {
            trap("a worker has started without a loop", file: #fileID, line: #line)
        }
        return loop
    }

    func stop(draining: Bool) {
        requests.bitwiseOr(Request.stop | (draining ? Request.drain : 0), ordering: .acquiringAndReleasing)
        loop.withLock { $0 }?.endRuns()
    }

    private func isRequested(_ request: UInt8) -> Bool { requests.load(ordering: .acquiring) & request != 0 }

    /// The body of the thread.
    func live() {
        let loop = EventRunLoop.current
        loop.add(keeper)
        self.loop.withLock { $0 = loop }
        started.open()
        while !isRequested(Request.stop) { loop.run() }
        if isRequested(Request.drain) { loop.run(for: .zero) }
        // Before the thread's other data, which the loop's last callbacks may use.
        LoopRegistry.endExisting()
        self.loop.withLock { $0 = nil }
    }
}
