import CAllocations
import Glibc
import RunLoopKit

/// Counts what one thread does for an operation: the allocations itself, the system calls by marks that the tracer finds.
///
/// Unchecked: one thread alone uses it, or one after another.
final class Meter: @unchecked Sendable {
    /// What is kept for later turns has been made by then: buffers, epoll sets.
    private static let warmUp = 200
    static let operations = 400
    static let all = warmUp + operations

    private let scenario: String
    private var ticks = 0
    private var before: UInt64 = 0

    init(_ scenario: String) { self.scenario = scenario }

    var isOver: Bool { ticks >= Meter.all }

    /// To be called once for each operation. True when there is enough.
    @discardableResult
    func tick() -> Bool {
        ticks += 1
        if ticks == Meter.warmUp { begin() }
        if ticks == Meter.all { end() }
        return isOver
    }

    private func begin() {
        unsafe mark_in_trace(Mark.begin)
        before = allocations_of_this_thread()
    }

    private func end() {
        let made = allocations_of_this_thread() - before
        unsafe mark_in_trace(Mark.end)
        if allocations_are_counted() { say("\(scenario).allocations", Double(made) / Double(Meter.operations)) }
    }
}

/// What the tracer looks for.
enum Mark {
    static let begin = "LoopCounts begins"
    static let end = "LoopCounts ends"
}

/// One line of the result, with the value rounded to hundredths: what happens once in a whole run is nothing.
func say(_ name: String, _ value: Double) {
    let hundredths = Int((value * 100).rounded())
    print("\(name) \(hundredths / 100).\(hundredths % 100 < 10 ? "0" : "")\(hundredths % 100)")
    fflush(nil)
}
