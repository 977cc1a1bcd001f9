import Glibc
import StallReports
import Testing

/// Where a test, or the part of one that is judged, stands in the source.
struct TestPlace: Sendable {
    /// The function, as `Test.name` and `#function` have it: `checkout(basket:)`.
    let name: String
    let location: SourceLocation
}

/// A test, or a part of one, in whose time nothing may stand still.
struct TestScope: Sendable {
    let number: Int
    let place: TestPlace
    let limit: Duration
    /// The lower half of its task's number, which is what a captured stack tells. Nil where the runtime does not say.
    let task: UInt32?
    let began: Timestamp
    /// Nil: it goes on.
    var ended: Timestamp?

    /// How much of a stall fell into its time, nanoseconds.
    func overlap(with stall: StallReport) -> Int64 {
        let stallEnd = stall.startedAt.advanced(byNanoseconds: stall.lengthNs)
        return min(stallEnd, ended ?? stallEnd).nanoseconds(since: max(stall.startedAt, began))
    }

    /// Whether it was this one's task that stood.
    func isTask(of stall: StallReport) -> Bool {
        guard let task else { return false }
        return stall.stalledStacks.contains { $0.async?.task == UInt64(task) }
            || stall.pool?.workers.contains { $0.task == UInt64(task) } == true
    }

    /// Whether its function, or a closure in it, stood on the stack or was awaited by what stood there.
    func isCaller(in stall: StallReport) -> Bool {
        let file = place.location.fileName
        return stall.stalledStacks.contains { stack in
            (stack.frames + (stack.async?.frames ?? [])).contains { frame in
                guard let function = frame.function, Self.names(place.name, in: function) else { return false }
                return frame.file.map { $0 == file || $0.hasSuffix("/" + file) } ?? true
            }
        }
    }

    /// Whether a function's full name has this one in it as a whole: `load()` is in `closure #1 in Suite.load()`, and not in `reload()`.
    static func names(_ name: String, in function: String) -> Bool {
        let isPartOfName = { (character: Character?) in
            character.map { $0.isLetter || $0.isNumber || $0 == "_" } ?? false
        }
        return function.ranges(of: name).contains { range in
            let before = function[..<range.lowerBound].last
            // What has its parentheses is at its end.
            let after = name.last == ")" ? nil : function[range.upperBound...].first
            return !isPartOfName(before) && !isPartOfName(after)
        }
    }

    /// The lower half of the calling task's number. Nil outside a task.
    static var currentTask: UInt32? {
        typealias Current = @convention(c) () -> UnsafeMutableRawPointer?
        typealias Number = @convention(c) (UnsafeMutableRawPointer) -> UInt64
        // Functions of Swift's runtime with one plain argument at most, for which its calling convention is C's.
        guard let current = unsafe dlsym(nil, "swift_task_getCurrent"),
            let number = unsafe dlsym(nil, "swift_task_getJobTaskId"),
            let task = unsafe unsafeBitCast(current, to: Current.self)()
        else { return nil }
        return UInt32(truncatingIfNeeded: unsafe unsafeBitCast(number, to: Number.self)(task))
    }
}

extension StallReport {
    /// From start to end, what is excluded left in: what an overlap is measured by.
    fileprivate var lengthNs: Int64 { durationNs.addingReportingOverflow(excludedNs ?? 0).partialValue }

    fileprivate var stalledStacks: [Stack] { stacks.filter { $0.role == .stalled } }
}
