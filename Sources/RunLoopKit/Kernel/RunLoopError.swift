import CRunLoopShims
import Glibc
import Synchronization

/// A failure of a run loop that is not a programmer error.
public struct RunLoopError: Error, Hashable, Sendable {
    /// The kind of failure. More may be added; switch with a default.
    public struct Code: Hashable, Sendable {
        /// For logs and JSON; stable: `loop_ended`.
        public let name: String
        /// What happened and what to do about it, in one sentence.
        let advice: String

        package init(_ name: String, _ advice: String) {
            self.name = name
            self.advice = advice
        }

        /// The loop's thread has ended (R3). Take the loop of a live thread.
        public static let loopEnded = Code(
            "loop_ended",
            "The run loop's thread has ended; use the loop of a live thread."
        )
        /// The item was invalidated. Make a new one.
        public static let itemInvalid = Code("item_invalid", "The item was invalidated; make a new one.")
        /// A timer or an observer belongs to one loop, and this one is on another loop. Remove it there first.
        public static let itemOnOtherLoop = Code(
            "item_on_other_loop",
            "The timer or observer is on another loop; remove it there first."
        )
        /// The descriptor is closed, or is of a kind that is always ready (a regular file) and cannot be waited for.
        public static let descriptorNotPollable = Code(
            "descriptor_not_pollable",
            "The descriptor cannot be waited for; it is closed, or a regular file."
        )
        /// Another source watches this descriptor in this mode. Use one source for both interests, or `dup` the descriptor.
        public static let descriptorInUse = Code(
            "descriptor_in_use",
            "The descriptor is watched in this mode already; use one source for it, or dup() it."
        )
        /// The process is out of descriptors, memory or watches. See `errno`.
        public static let outOfResources = Code(
            "out_of_resources",
            "The process is out of descriptors or memory; raise its limits."
        )
        /// An interval that is not a number, or is infinite.
        public static let invalidInterval = Code(
            "invalid_interval",
            "A timer's interval must be a finite number of seconds."
        )
        /// A perform request had not begun when the caller's timeout passed, and was withdrawn (R52).
        public static let requestTimedOut = Code(
            "request_timed_out",
            "The loop did not come to the request in time, and will not run it; see what keeps it busy."
        )
        /// The system could not start a thread. See `errno`.
        public static let threadNotStarted = Code(
            "thread_not_started",
            "No thread could be started; raise the limits on processes and memory."
        )
    }

    /// The kind of error, for programs to test; `description` is for users.
    public let code: Code
    /// The errno that the kernel returned, if any.
    public let errno: Int32?

    package init(_ code: Code, errno: Int32? = nil) {
        self.code = code
        self.errno = errno
    }
}

extension RunLoopError: CustomStringConvertible {
    /// What happened and what to do about it, with the system's text for `errno` (strerror(3)) where there is one.
    public var description: String {
        let reason = errno.map { unsafe " (\(String(cString: strerror($0))))" } ?? ""
        return code.advice + reason
    }
}

/// Traps on a programmer error, from which the loop cannot continue. Also in an optimised build it prints the text on stderr
/// with the line of the program that made the error; a `precondition` would end the process there without a message.
@inline(__always)
package func require(
    _ condition: Bool,
    _ text: @autoclosure () -> String,
    file: StaticString = #fileID,
    line: UInt = #line
) {
    if !condition { trap(text(), file: file, line: line) }
}

/// Ends the process with the text and a line of the program: for ``require(_:_:file:line:)``, and for places that cannot be reached
/// unless this library has a mistake itself. `fatalError`, because it prints its text in an optimised build, too.
@inline(never)
package func trap(_ text: String, file: StaticString, line: UInt) -> Never {
    fatalError("RunLoopKit: " + text, file: file, line: line)
}

/// An error or a shortage that the loop survives. Printed on stderr once per process, not each time.
package enum LoopWarning: UInt32 {
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
    case notInCommonMode
    case portNotInCommonMode

    init(_ error: RunLoopError) {
        switch error.code {
        case .loopEnded: self = .loopEnded
        case .itemInvalid: self = .itemInvalid
        case .itemOnOtherLoop: self = .itemOnOtherLoop
        default: self = .outOfResources
        }
    }

    /// One bit for each warning that was printed.
    private static let printed = Atomic<UInt32>(0)

    /// Prints the warning, unless this process has printed it before. Any thread.
    package func printOnce() {
        let bit: UInt32 = 1 << rawValue
        guard LoopWarning.printed.bitwiseOr(bit, ordering: .relaxed).oldValue & bit == 0 else { return }
        // A static string ends with a NUL.
        unsafe run_loop_warn(UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self))
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
        case .notInCommonMode: "a descriptor source was left out of a mode that became common"
        case .portNotInCommonMode: "a port is not served in a mode that became common: it cannot be watched there"
        }
    }
}
