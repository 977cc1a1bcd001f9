import CMonitorShims
import CRunLoopShims
import Glibc
import Locking
import RunLoopKit
import Synchronization

/// A named thread of the monitor that blocks all signals.
///
/// The thread is detached, and signals its end itself. The thread sanitizer does not know the calls that join a thread with a
/// deadline: it ends a program in which a later thread gets the handle of a thread that was joined by one of them.
package struct MonitorThread: Sendable {
    private let life = ThreadLife()

    /// Starts a thread. `name` is shown by `ps -L` and in captured stacks; at most 15 bytes.
    ///
    /// - Parameter loss: What is lost without the thread. By default it is the whole monitor.
    /// - Throws: ``StallMonitorError`` with that code if the system cannot start a thread (EAGAIN).
    package init(
        name: String,
        orElse loss: StallMonitorError.Code = .threadNotStarted,
        _ body: @escaping @Sendable () -> Void
    ) throws(StallMonitorError) {
        let box = unsafe Unmanaged.passRetained(ThreadBody(body, life))
        let error = unsafe monitor_thread_start(
            name,
            { context in unsafe Unmanaged<ThreadBody>.fromOpaque(context).takeRetainedValue().run() },
            box.toOpaque()
        )
        guard error == 0 else {
            unsafe box.release()
            let remedy = "No thread could be started for that. Raise the limit of threads (ulimit -u, pids.max)."
            throw StallMonitorError(loss, errno: error, loss == .threadNotStarted ? nil : remedy)
        }
    }

    /// Waits until the thread has returned from its body and released it, or until the deadline. Returns whether it has. Any
    /// thread, and any number of them. On the thread itself it returns false at once: a handler may stop its own monitor,
    /// although it must not.
    func join(by deadline: MonotonicInstant) -> Bool {
        guard life.threadID.load(ordering: .relaxed) != run_loop_own_tid(), life.ended.wait(until: deadline) else {
            return false
        }
        life.ended.signal()
        return true
    }
}

private final class ThreadLife: Sendable {
    /// 0 before the body begins and after it has returned.
    let threadID = Atomic<Int32>(0)
    /// Signalled once the body has returned. A caller that has taken the signal signals it again, for the next one.
    let ended = TickSemaphore()
}

private final class ThreadBody {
    private var body: (@Sendable () -> Void)?
    private let life: ThreadLife

    init(_ body: @escaping @Sendable () -> Void, _ life: ThreadLife) { (self.body, self.life) = (body, life) }

    func run() {
        life.threadID.store(run_loop_own_tid(), ordering: .relaxed)
        body?()
        // What only the thread uses is released before others hear of its end.
        body = nil
        life.threadID.store(0, ordering: .relaxed)
        life.ended.signal()
    }
}

/// Distinguishes a fork's child from its parent. The child has none of the monitor's threads, and locks may be held there
/// forever.
package struct ForkGeneration: Hashable, Sendable {
    private let number: UInt32

    package static var current: ForkGeneration { ForkGeneration(number: run_loop_generation()) }

    /// Whether this is still the process in which it was taken. Any thread; one load.
    package var isCurrent: Bool { self == .current }
}

/// A value that exists once per process. A fork's child gets its own, because it does not have the threads that the parent's
/// value uses.
package final class PerProcess<Value: Sendable>: Sendable {
    private let first: Value
    private let generation = ForkGeneration.current
    /// That of a fork's child. The process that made this object never takes the lock, so no child finds it held.
    private let latest = ForkSafeMutex<(generation: ForkGeneration, value: Value)?>(nil)
    private let make: @Sendable () -> Value

    /// - Parameter make: Called now, and again in a fork's child on first use.
    package init(_ make: @escaping @Sendable () -> Value) {
        self.make = make
        first = make()
    }

    /// The value of the present process. Any thread.
    package var current: Value {
        if generation.isCurrent { return first }
        return latest.withLock { latest in
            if let latest, latest.generation.isCurrent { return latest.value }
            let value = make()
            latest = (generation: .current, value: value)
            return value
        }
    }
}

/// The semaphore on which a monitor thread waits. `signal` may be called from any thread, and is async-signal-safe (sem_post(3)).
@safe final class TickSemaphore: Sendable {
    // Immutable after init, and a semaphore may be used by several threads.
    nonisolated(unsafe) private let semaphore: UnsafeMutablePointer<sem_t>

    init() {
        guard let made = unsafe monitor_semaphore_create() else {
            fatalError("out of memory for 32 bytes: no part of the process can go on")
        }
        unsafe semaphore = made
    }

    deinit {
        unsafe monitor_semaphore_destroy(semaphore)
    }

    func signal() {
        unsafe sem_post(semaphore)
    }

    /// Parks the calling thread until a signal. A parked thread costs nothing.
    func wait() {
        unsafe monitor_semaphore_wait(semaphore)
    }

    /// Waits until a signal or the deadline, if there is one. Returns whether there was a signal.
    func wait(until deadline: MonotonicInstant?) -> Bool {
        guard let deadline else {
            wait()
            return true
        }
        return unsafe monitor_semaphore_wait_until(semaphore, deadline.nanoseconds)
    }
}

/// Calls a closure that may take long, because it asks the kernel or the server's code, on a separate thread, and waits for its
/// result only for a limited time. While one has not returned, no other is called, so at most one thread hangs. For the
/// reporter's thread.
final class TimedLookup: Sendable {
    private let isBusy = Atomic(false)

    /// The result. Nil if it did not arrive in time.
    func ask<Answer: Sendable>(
        within time: Duration = .seconds(1),
        _ question: @escaping @Sendable () -> Answer
    ) -> Answer? {
        guard !isBusy.exchange(true, ordering: .acquiringAndReleasing) else { return nil }
        let slot = Slot<Answer>()
        do throws(StallMonitorError) {
            let thread = try MonitorThread(name: "stall-lookup") { [self] in
                let answer = question()
                slot.answer.withLock { $0 = answer }
                isBusy.store(false, ordering: .releasing)
            }
            // By its end the thread has released the question, which may hold the server's objects.
            _ = thread.join(by: .now + time)
            return slot.answer.withLock { $0 }
        } catch {
            isBusy.store(false, ordering: .releasing)
            return nil
        }
    }

    private final class Slot<Answer: Sendable>: Sendable {
        let answer = Mutex<Answer?>(nil)
    }
}

/// An interval that doubles each time, up to a limit. Pure.
struct DoublingInterval: Hashable, Sendable {
    private let first: Duration
    private let longest: Duration
    private var current: Duration

    init(from first: Duration, upTo longest: Duration) { (self.first, self.longest, current) = (first, longest, first) }

    /// The present interval. The next one is twice as long.
    mutating func next() -> Duration {
        defer { current = min(current * 2, longest) }
        return current
    }

    mutating func reset() { current = first }
}
