import Glibc
package import RunLoopKit
import Synchronization

/// The events that happened, in order.
package final class Trace: Sendable {
    package init() {}

    private let entries = Mutex<[String]>([])

    package var all: [String] { entries.withLock { $0 } }

    package func note(_ entry: String) { entries.withLock { $0.append(entry) } }

    package func clear() { entries.withLock { $0 = [] } }
}

/// Counts, from any thread.
package final class Counter: Sendable {
    package init() {}

    private let count = Atomic<Int>(0)

    package var value: Int { count.load(ordering: .sequentiallyConsistent) }

    @discardableResult
    package func increment() -> Int { count.add(1, ordering: .sequentiallyConsistent).newValue }
}

/// A value that a closure captures before the value exists.
package final class Box<Value: Sendable>: Sendable {
    private let content: Mutex<Value>

    package init(_ value: Value) { content = Mutex(value) }

    package var value: Value {
        get { content.withLock { $0 } }
        set { content.withLock { $0 = newValue } }
    }
}

/// An object that uses the loop in its deinit, as objects of a program do. If the loop releases it under a lock, the process traps.
package final class LoopUserInDeinit: Sendable {
    private let loop: EventRunLoop
    private let trace: Trace

    package init(of loop: EventRunLoop, _ trace: Trace) { (self.loop, self.trace) = (loop, trace) }

    deinit {
        // Takes the locks of the loop, of its modes and of their items.
        trace.note("freed, modes: \(loop.snapshot.modes.map(\.name))")
    }
}

/// A thread that can be joined.
package final class TestThread: Sendable {
    private let handle: Mutex<pthread_t?>

    package init(name: String? = nil, _ body: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let work = unsafe Unmanaged.passRetained(Work(name: name, body: body)).toOpaque()
        let failure = unsafe pthread_create(
            &thread,
            nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                let work = unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue()
                if let name = work.name { nameThisThread(name) }
                work.body()
                return nil
            },
            work
        )
        precondition(failure == 0, "pthread_create: errno \(failure)")
        handle = Mutex(thread)
    }

    /// If the thread is not joined, it is detached so that it leaves nothing behind.
    deinit {
        if let thread = handle.withLock({ $0.take() }) { pthread_detach(thread) }
    }

    /// Waits until the thread and everything that ends with it have ended.
    package func join() {
        let thread = handle.withLock { $0.take() }
        if let thread { pthread_join(thread, nil) }
    }

    private final class Work: Sendable {
        package let name: String?
        package let body: @Sendable () -> Void

        package init(name: String?, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }
}

private func nameThisThread(_ name: String) {
    let file = unsafe open("/proc/thread-self/comm", O_WRONLY)
    precondition(file >= 0, "cannot name the thread: errno \(errno)")
    _ = unsafe write(file, name, name.utf8.count)
    close(file)
}

/// Runs `body` on a new thread with that thread's loop, and returns its result after the thread has ended.
package func onLoopThread<Result: Sendable>(_ body: @escaping @Sendable (EventRunLoop) -> Result) async -> Result {
    let result = Box<Result?>(nil)
    await withCheckedContinuation { continuation in
        let thread = Box<TestThread?>(nil)
        thread.value = TestThread {
            result.value = body(EventRunLoop.current)
            // Joined by another thread, so that no thread of the test runner is blocked.
            _ = TestThread {
                while thread.value == nil { sched_yield() }
                thread.value?.join()
                continuation.resume()
            }
        }
    }
    guard let value = result.value else { preconditionFailure("the thread ended without a result") }
    return value
}

/// Keeps a mode from being empty.
@discardableResult
package func occupy(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode = .default) -> EventSource {
    let source = EventSource { _ in }
    loop.add(source, to: mode)
    return source
}

/// Records the name of every activity of a mode in a trace.
@discardableResult
package func observe(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode = .default, in trace: Trace) -> LoopObserver {
    let observer = LoopObserver { _, activity in trace.note(name(of: activity)) }
    loop.add(observer, to: mode)
    return observer
}

package func name(of activity: EventRunLoop.Activity) -> String {
    switch activity {
    case .entry: "entry"
    case .beforeTimers: "timers"
    case .beforeSources: "sources"
    case .beforeWaiting: "waiting"
    case .afterWaiting: "woken"
    case .exit: "exit"
    default: "unknown"
    }
}

/// For lower bounds.
package func elapsed(since start: MonotonicInstant) -> Duration { start.duration(to: .now) }
