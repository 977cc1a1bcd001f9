internal import CRunLoopShims
internal import Synchronization

/// What the loop cannot go on from: a mistake of the program's. In an optimised build, too, its text is told on stderr, with the line of the
/// program that made it, where a `precondition` would end the process without a word.
@inline(__always)
func require(
    _ condition: Bool,
    _ text: @autoclosure () -> String,
    file: StaticString = #fileID,
    line: UInt = #line
) {
    if !condition { trap(text(), file: file, line: line) }
}

@inline(never)
func trap(_ text: String, file: StaticString, line: UInt) -> Never {
    fatalError("RunLoopKit: " + text, file: file, line: line)
}

/// A mistake or a shortage that the loop survives. Told on stderr once a process, not each time.
enum Complaint: UInt32 {
    case commonIsNoMode
    case loopEnded
    case itemInvalid
    case itemOnOtherLoop
    case outOfResources
    case cannotWatchClock
    case taskAfterEnd
    case descriptorsClosed
    case mainQueueUnwatched
    case mainQueueForked
    case loopOfParent

    init(_ error: RunLoopError) {
        switch error.code {
        case .loopEnded: self = .loopEnded
        case .itemInvalid: self = .itemInvalid
        case .itemOnOtherLoop: self = .itemOnOtherLoop
        default: self = .outOfResources
        }
    }

    /// A bit for each that was made.
    private static let made = Atomic<UInt32>(0)

    func make() {
        let bit: UInt32 = 1 << rawValue
        guard Complaint.made.bitwiseOr(bit, ordering: .relaxed).oldValue & bit == 0 else { return }
        // A static string ends with a NUL.
        unsafe run_loop_complain(UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self))
    }

    private var text: StaticString {
        switch self {
        case .commonIsNoMode: "a run in the common modes was refused; name the mode to run"
        case .loopEnded: "a call was ignored: the loop's thread has ended"
        case .itemInvalid: "an invalid source, timer or observer was not added"
        case .itemOnOtherLoop: "a timer or observer was not added: it is on another loop"
        case .outOfResources: "no descriptors left: a loop polls until there are some again"
        case .cannotWatchClock: "no descriptors left: a loop looks each second whether the clock was set"
        case .taskAfterEnd: "a task or an actor is on a loop whose thread has ended; it runs on a dispatch queue"
        case .descriptorsClosed: "a loop's descriptors were closed: it makes new ones"
        case .mainQueueUnwatched: "the main queue cannot be watched: it is served late"
        case .mainQueueForked: "the main queue is not served in a forked child"
        case .loopOfParent: "a call was ignored: the loop's thread is the parent's"
        }
    }
}
