import Glibc
import StackCapture
import Synchronization

/// A function that awaits, and the line on which it does.
struct Awaiting: Hashable {
    var function: String
    var line: Int
    /// The runtime's number of its task.
    var task: UInt64?
    /// How many lines further on the optimiser may put the `await`.
    var slack: Int
    /// What it awaits may be built into it: then it stands on the stack itself.
    var isOptional: Bool
}

/// How the innermost function stands still.
enum Standstill: String, CaseIterable {
    /// Computes without end: to be captured by a signal.
    case spin
    /// Sleeps in a system call: to be captured from outside.
    case sleep
}

/// What the shape under trial says of itself while it runs.
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

    /// Nil until the shape stands still.
    static var standing: State? {
        state.withLock { $0.standing == nil ? nil : $0 }
    }

    /// Lets the innermost function return.
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

    /// The innermost function's work. A second call of a shape returns at once.
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

    /// The runtime's own number of the running task.
    private static func currentTask() -> UInt64? {
        unsafe withUnsafeCurrentTask { task in
            unsafe task.map { unsafe taskNumber(ofJob: unsafeBitCast($0, to: UnsafeRawPointer.self)) }
        }
    }
}

/// Exported by the concurrency runtime for `ExecutorJob.description`.
@_silgen_name("swift_task_getJobTaskId")
private func taskNumber(ofJob job: UnsafeRawPointer) -> UInt64

/// Says which function awaits on this line, as its argument is made. The callee's context does not exist yet.
///
/// - Parameter number: the function's own argument, so that the optimiser keeps it.
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

/// The synchronous function that every shape comes down to.
@inline(never)
@discardableResult
func standStill(_ number: Int) -> Int {
    Trial.stand()
    return number &+ 1
}

/// Suspends, so that what follows runs in a function of its own.
@inline(never)
@discardableResult
func breathe(_ number: Int = 0) async -> Int {
    await Task.yield()
    return number
}
