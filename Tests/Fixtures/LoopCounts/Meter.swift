import CAllocations
import Glibc
import RunLoopKit

/// Counts the work of one thread for an operation: the allocations
/// directly, the system calls through marks that the tracer finds.
///
/// Unchecked: only one thread uses it at a time.
final class Meter: @unchecked Sendable {
    /// After these operations everything that is kept for later turns exists: buffers, epoll sets.
    private static let warmUp = 200
    static let operations = 400
    static let all = warmUp + operations

    private let scenario: String
    private var ticks = 0
    private var before: UInt64 = 0

    init(_ scenario: String) { self.scenario = scenario }

    var isOver: Bool { ticks >= Meter.all }

    /// Called once for each operation. Returns true when there are enough.
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

/// The marks that the tracer searches for.
enum Mark {
    static let begin = "LoopCounts begins"
    static let end = "LoopCounts ends"
}

/// One line of the result, with the value rounded to hundredths: an event that happens once in a whole run counts as zero.
func say(_ name: String, _ value: Double) {
    let hundredths = Int((value * 100).rounded())
    print("\(name) \(hundredths / 100).\(hundredths % 100 < 10 ? "0" : "")\(hundredths % 100)")
    fflush(nil)
}
