import Glibc
import StackCapture
import Synchronization

/// An awaiting function, and the line of its `await`.
struct Awaiting: Hashable {
    var function: String
    var line: Int
    /// The runtime's number of its task.
    var task: UInt64?
    /// The number of lines by which the optimiser may move the `await` down.
    var slack: Int
    /// The awaited function may be merged into it: then it is on the stack itself.
    var isOptional: Bool
}

/// The way in which the innermost function is stalled.
enum Standstill: String, CaseIterable {
    /// Computes without end: captured with a signal.
    case spin
    /// Sleeps in a system call: captured from outside.
    case sleep
}

/// The state that the shape under test records while it runs.
enum Trial {
    struct State {
        /// Innermost first.
        var awaiting: [Awaiting] = []
        var standing: ThreadIdentity?
        var task: UInt64?
        var standstill = Standstill.spin
    }

    private static let state = Mutex(State())
    private static let isReleased = Atomic(false)
    private static let pipe: (read: Int32, write: Int32) = {
        var ends: [Int32] = [0, 0]
        _ = unsafe Glibc.pipe(&ends)
        return (ends[0], ends[1])
    }()

    static func begin(_ standstill: Standstill) {
        isReleased.store(false, ordering: .sequentiallyConsistent)
        state.withLock { $0 = State(standstill: standstill) }
    }

    /// Nil until the shape is stalled.
    static var standing: State? {
        state.withLock { $0.standing == nil ? nil : $0 }
    }

    /// Makes the innermost function return.
    static func release() {
        isReleased.store(true, ordering: .sequentiallyConsistent)
        var byte: UInt8 = 1
        if state.withLock({ $0.standstill }) == .sleep { unsafe write(pipe.write, &byte, 1) }
    }

    static func note(_ function: String, _ line: Int, isOptional: Bool, slack: Int) {
        let awaiting = Awaiting(
            function: function,
            line: line,
            task: currentTask(),
            slack: slack,
            isOptional: isOptional
        )
        state.withLock { $0.awaiting.insert(awaiting, at: 0) }
    }

    /// The innermost function's work. The second call of a shape returns immediately.
    static func stand() {
        if isReleased.load(ordering: .sequentiallyConsistent) { return }
        let task = currentTask()
        let standstill = state.withLock { state in
            state.task = task
            state.standing = ThreadIdentity.current()
            return state.standstill
        }
        switch standstill {
        case .spin: spin()
        case .sleep: sleep()
        }
    }

    @inline(never) private static func spin() {
        while !isReleased.load(ordering: .relaxed) {}
    }

    @inline(never) private static func sleep() {
        var byte: UInt8 = 0
        unsafe read(pipe.read, &byte, 1)
    }

    /// The runtime's number of the running task.
    private static func currentTask() -> UInt64? {
        unsafe withUnsafeCurrentTask { task in
            unsafe task.map { unsafe taskNumber(ofJob: unsafeBitCast($0, to: UnsafeRawPointer.self)) }
        }
    }
}

/// Exported by the concurrency runtime for `ExecutorJob.description`.
@_silgen_name("swift_task_getJobTaskId")
private func taskNumber(ofJob job: UnsafeRawPointer) -> UInt64

/// Records which function awaits on this line. It is called while the
/// argument is evaluated; the callee's context does not exist yet.
///
/// - Parameter number: The function's own argument, so that the optimiser keeps it.
@inline(never)
func here(
    _ function: String,
    with number: Int = 0,
    linesOn: Int = 0,
    isOptional: Bool = false,
    slack: Int = 0,
    line: Int = #line
)
    -> Int
{
    Trial.note(function, line + linesOn, isOptional: isOptional, slack: slack)
    return number &+ line
}

/// The synchronous function that every shape calls in the end.
@inline(never)
@discardableResult
func standStill(_ number: Int) -> Int {
    Trial.stand()
    return number &+ 1
}

/// Suspends, so that the code after it is a separate function.
@inline(never)
@discardableResult
func breathe(_ number: Int = 0) async -> Int {
    await Task.yield()
    return number
}
