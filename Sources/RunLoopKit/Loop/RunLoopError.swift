internal import Glibc

/// What can go wrong with a run loop that is not the caller's mistake.
public struct RunLoopError: Error, Hashable, Sendable {
    /// The kind of failure. More may come; switch with a default.
    public struct Code: Hashable, Sendable {
        let name: String

        /// The loop's thread has ended (R3). Take the loop of a live thread.
        public static let loopEnded = Code(name: "loopEnded")
        /// The item was invalidated. Make a new one.
        public static let itemInvalid = Code(name: "itemInvalid")
        /// A timer or an observer belongs to one loop, and this one is another's. Remove it there first.
        public static let itemOnOtherLoop = Code(name: "itemOnOtherLoop")
        /// The descriptor is closed, or is of a kind that is always ready (a regular file) and cannot be waited for.
        public static let descriptorNotPollable = Code(name: "descriptorNotPollable")
        /// Another source watches this descriptor in this mode. Use one source for both interests, or `dup` the descriptor.
        public static let descriptorInUse = Code(name: "descriptorInUse")
        /// The process is out of descriptors, memory or watches. See `underlying`.
        public static let outOfResources = Code(name: "outOfResources")
        /// An interval that is not a number, or is infinite.
        public static let invalidInterval = Code(name: "invalidInterval")
        /// A perform request had not begun when the caller's time was over, and was withdrawn (R52).
        public static let requestTimedOut = Code(name: "requestTimedOut")
        /// The system has no thread to give. See `underlying`.
        public static let threadNotStarted = Code(name: "threadNotStarted")
    }

    /// For programs to decide by; `description` is for people.
    public let code: Code
    /// The errno that the kernel gave, if it did.
    public let errno: Int32?

    init(_ code: Code, errno: Int32? = nil) {
        self.code = code
        self.errno = errno
    }
}

extension RunLoopError: CustomStringConvertible {
    /// What happened and what to do about it, with the system's text for `errno` (strerror(3)) where there is one.
    public var description: String {
        let reason = errno.map { unsafe " (\(String(cString: strerror($0))))" } ?? ""
        return (Self.advice[code] ?? Self.portAdvice[code] ?? code.name) + reason
    }

    private static let advice: [Code: String] = [
        .loopEnded: "The run loop's thread has ended; use the loop of a live thread.",
        .itemInvalid: "The item was invalidated; make a new one.",
        .itemOnOtherLoop: "The timer or observer is on another loop; remove it there first.",
        .descriptorNotPollable: "The descriptor cannot be waited for; it is closed, or a regular file.",
        .descriptorInUse: "The descriptor is watched in this mode already; use one source for it, or dup() it.",
        .outOfResources: "The process is out of descriptors or memory; raise its limits.",
        .invalidInterval: "A timer's interval must be a finite number of seconds.",
        .requestTimedOut: "The loop did not come to the request in time, and will not run it; see what keeps it busy.",
        .threadNotStarted: "No thread could be started; raise the limits on processes and memory.",
    ]
}
