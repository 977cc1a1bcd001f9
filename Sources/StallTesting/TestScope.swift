import StallMonitor
import StallReports

/// The function of a test, or of the judged part of a test.
package struct TestPlace: Sendable {
    /// In the format of `Test.name` and `#function`: `checkout(basket:)`.
    let name: String
    /// The name of its source file. Nil if it is not known: XCTest does not provide it.
    let file: String?

    package init(name: String, file: String?) { (self.name, self.file) = (name, file) }
}

/// A test, or a part of one, during which no watched loop may stall.
struct TestScope: Sendable {
    let number: Int
    let place: TestPlace
    let limit: Duration
    /// The lower half of its task's number, which is the part in a captured stack. Nil if the runtime does not provide it.
    let task: UInt32?
    let began: Timestamp
    /// Nil while it is running.
    var ended: Timestamp?

    /// The part of a stall that overlaps with the scope, in nanoseconds. A stall that is not over lasts at least until the scope's
    /// end: scopes are judged when all stalls that ended before are reported.
    func overlap(with stall: StallReport) -> Int64 {
        let knownEnd = stall.startedAt.advanced(byNanoseconds: stall.lengthNs)
        let stallEnd = stall.endedAt == nil ? max(ended ?? knownEnd, knownEnd) : knownEnd
        return min(stallEnd, ended ?? stallEnd).nanoseconds(since: max(stall.startedAt, began))
    }

    /// Whether the scope's task was stalled.
    func isTask(of stall: StallReport) -> Bool {
        guard let task else { return false }
        return stall.stalledStacks.contains { $0.async?.task == UInt64(task) }
            || stall.pool?.workers.contains { $0.task == UInt64(task) } == true
    }

    /// Whether its function, or a closure in it, was on the stalled stack, or awaited a function there.
    func isCaller(in stall: StallReport) -> Bool {
        stall.stalledStacks.contains { stack in
            (stack.frames + (stack.async?.frames ?? [])).contains { frame in
                guard let function = frame.function, Self.names(place.name, in: function) else { return false }
                guard let file = place.file, let path = frame.file else { return true }
                return path == file || path.hasSuffix("/" + file)
            }
        }
    }

    /// Whether a function's full name contains this one as a whole:
    /// `load()` is in `closure #1 in Suite.load()`, and not in `reload()`.
    static func names(_ name: String, in function: String) -> Bool {
        let isPartOfName = { (character: Character?) in
            character.map { $0.isLetter || $0.isNumber || $0 == "_" } ?? false
        }
        return function.ranges(of: name).contains { range in
            let before = function[..<range.lowerBound].last
            // A name with parentheses is complete.
            let after = name.last == ")" ? nil : function[range.upperBound...].first
            return !isPartOfName(before) && !isPartOfName(after)
        }
    }

    /// The lower half of the calling task's number. Nil outside a task.
    static var currentTask: UInt32? { WorkKey.currentTaskNumber }
}

extension StallReport {
    /// From start to end, including excluded time: the overlap is computed from it.
    fileprivate var lengthNs: Int64 { durationNs.addingReportingOverflow(excludedNs ?? 0).partialValue }

    fileprivate var stalledStacks: [Stack] { stacks.filter { $0.role == .stalled } }
}
