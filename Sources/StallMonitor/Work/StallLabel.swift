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
