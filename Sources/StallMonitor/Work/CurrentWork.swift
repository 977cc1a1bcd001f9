import CMonitorShims
import CRunLoopShims
import RunLoopKit
package import StallReports

/// Identifies work by its task or its thread.
package struct WorkKey: Hashable, Sendable {
    let number: UInt64

    /// A task, by the lower half of its number, which is the part that a captured stack contains.
    package static func task(_ number: UInt32) -> WorkKey { WorkKey(number: UInt64(number)) }

    package static func thread(_ number: Int32) -> WorkKey {
        WorkKey(number: 1 << 32 | UInt64(UInt32(bitPattern: number)))
    }

    /// For a closure that may suspend: the calling task. Nil outside a task, and if the runtime does not provide the number.
    package static var currentTask: WorkKey? { currentTaskNumber.map { .task($0) } }

    /// The lower half of the calling task's number. Nil outside a task, and if the runtime does not provide it.
    package static var currentTaskNumber: UInt32? {
        let number = monitor_current_task()
        return number == 0 ? nil : number
    }

    /// For a closure that does not suspend: the calling thread.
    package static var currentThread: WorkKey { .thread(run_loop_own_tid()) }
}

/// The server's description of a closure while it runs.
package struct WorkNote: Sendable {
    /// A name for reports.
    var label: String?
    package var context: (any WorkContext)?

    package init(label: String? = nil, context: (any WorkContext)? = nil) {
        (self.label, self.context) = (label, context)
    }
}

/// What another module knows about the work, such as a request's trace.
package protocol WorkContext: Sendable {
    /// Called on a thread of the monitor, which waits for a tenth of a second.
    var trace: StallReport.Trace? { get }
}

/// The server's description of the stalled work.
struct StalledWork: Sendable {
    /// Outermost first.
    var labels: [String] = []
    /// The context of the innermost work that has one.
    var context: (any WorkContext)?
    /// The contexts of other work that was begun on the stalled thread.
    var waiting: [any WorkContext] = []

    /// The largest numbers in a report and a span.
    static let limits = (labels: 16, bytes: 128, contexts: 32)

    init() {}

    /// - Parameters:
    ///   - report: A report of this process.
    ///   - time: When it was detected.
    init(of report: StallReport, at time: MonotonicInstant, in table: WorkTable = .current) {
        let keys = report.workKeys
        let marks = table.marks(of: keys, at: time)
        labels = marks.compactMap(\.note.label).prefix(Self.limits.labels).map { $0.cut(toBytes: Self.limits.bytes) }
        context = marks.last { $0.note.context != nil }?.note.context
        // Beside a long job, other workers go on with what had begun on its thread.
        guard report.kind != .longJob else { return }
        let thread = Int32(truncatingIfNeeded: report.thread.id)
        let others = table.contexts(begunOn: thread, besides: Set(keys), before: time)
        waiting = Array(others.prefix(Self.limits.contexts))
    }
}

extension StallReport {
    /// The stalled thread and its task; for a task pool, those of every worker.
    fileprivate var workKeys: [WorkKey] {
        let stalled = stacks.filter { $0.role == .stalled }
        let tasks = stalled.compactMap { $0.async?.task } + (pool?.workers.compactMap(\.task) ?? [])
        let threads = pool.map { $0.workers.map(\.thread.id) } ?? [thread.id]
        return tasks.map { .task(UInt32(truncatingIfNeeded: $0)) }
            + threads.map { .thread(Int32(truncatingIfNeeded: $0)) }
    }
}

/// Names the work of a closure. The report of a stall in it contains the name, as one of `labels`.
///
///     try withStallLabel("checkout") { try charge(basket) }
///
/// Labels nest; reports list the outermost first. A label costs two clock reads and two short locks, and nothing while no monitor runs.
/// A report contains up to 16 labels of up to 128 bytes each.
///
/// Any thread. The label is bound to the thread, which `body` does not leave.
public func withStallLabel<Value, Failure: Error>(
    _ label: String,
    _ body: () throws(Failure) -> Value
) throws(Failure) -> Value {
    try withWorkNote(WorkNote(label: label), body)
}

/// Names the work of a task, including all that it awaits in `body`. The report of a stall in it contains the name, as one of `labels`.
///
/// The label is bound to the calling task. A child task (`async let`, a task group) or a `Task { }` is a different task and does not inherit it:
/// set a label inside it.
public nonisolated(nonsending) func withStallLabel<Value, Failure: Error>(
    _ label: String,
    _ body: nonisolated(nonsending) () async throws(Failure) -> Value
) async throws(Failure) -> Value {
    try await withWorkNote(WorkNote(label: label), body)
}

/// Records the note for the calling thread while `body` runs.
package func withWorkNote<Value, Failure: Error>(
    _ note: @autoclosure () -> WorkNote,
    _ body: () throws(Failure) -> Value
) throws(Failure) -> Value {
    guard WorkTable.isRead else { return try body() }
    let (table, key) = (WorkTable.current, WorkKey.currentThread)
    table.begin(note(), as: key)
    defer { table.end(key) }
    return try body()
}

/// Records the note for the calling task while `body` runs.
package nonisolated(nonsending) func withWorkNote<Value, Failure: Error>(
    _ note: @autoclosure () -> WorkNote,
    _ body: nonisolated(nonsending) () async throws(Failure) -> Value
) async throws(Failure) -> Value {
    guard WorkTable.isRead, let key = WorkKey.currentTask else { return try await body() }
    let table = WorkTable.current
    table.begin(note(), as: key)
    defer { table.end(key) }
    return try await body()
}
