import Glibc
import Synchronization

// While a thread waits for a message port, some words in its memory name the port. They lie beside what the waiting system call gets:
// before epoll's events if the thread waits for a reply, behind the polled descriptor if it waits for room. A reader of captured stacks
// finds them by the call's arguments, without a lock, and also in other processes. They are true for exactly as long as the thread is
// in that call: a handler that runs meanwhile waits elsewhere, or not at all. This is interface for such readers, like `WaitPoint`.

/// Whose loop has a port, for the threads that wait for the port. Any thread.
package final class PortPlace: Sendable {
    // Relaxed everywhere: readers want the latest value, and no other memory depends on it.
    fileprivate let thread = Atomic<Int32>(0)
    fileprivate let modes = Atomic<UInt64>(0)

    /// The place of a port that is on no loop.
    package init() {}

    /// Records where the port is now.
    ///
    /// - Parameters:
    ///   - thread: The kernel's id of the thread whose loop has it. 0 if that is not exactly one loop.
    ///   - modes: Indices of the modes in which it is served.
    func note(thread: Int32, modes: [Int?]) {
        self.thread.store(thread, ordering: .relaxed)
        self.modes.store(modes.reduce(UInt64(0)) { $0 | PortWait.bit(of: $1) }, ordering: .relaxed)
    }
}

/// The receiving side of a connection, as far as the sending side knows it.
@safe package final class PortDestination: Sendable {
    fileprivate let place: PortPlace?
    /// The process that has the port, if it is another one. 0 for this process, and if that is not known.
    fileprivate let process: Int32
    // Never changed; released with this object. Readers of the memory find the text by its address.
    private nonisolated(unsafe) let name: UnsafeMutablePointer<CChar>?

    /// - Parameters:
    ///   - place: Nil for a port that is not in this process, or is not known.
    ///   - name: The name by which it was found.
    package init(_ place: PortPlace? = nil, name: String? = nil, process: Int32 = 0) {
        (self.place, self.process) = (place, process)
        unsafe self.name = name.flatMap { unsafe strdup($0) }
    }

    deinit { unsafe free(name) }

    fileprivate var nameAddress: UInt { unsafe UInt(bitPattern: name) }
}

/// What a thread waits for at a message port.
package struct PortWait: Sendable {
    /// What has to come for the wait to end.
    package enum Reason: UInt32, Sendable {
        /// The reply to a request. The thread's loop runs a mode meanwhile.
        case reply = 1
        /// Room in the queue of the receiver, which does not read.
        case room = 2
    }

    /// The number of the words, of 32 bits each.
    package static let count = 12
    /// The first two words, the lower half first. No text, and no valid address.
    package static let mark: UInt64 = 0xd0e1_6f50_6f4c_6e75
    /// The bytes between the descriptor's beginning, `struct pollfd`, and the words.
    package static let offsetBehindPolled = 8

    private let reason: Reason
    private let isTimed: Bool
    private let destination: PortDestination

    /// - Parameter isTimed: Whether the wait has a limit.
    package init(_ reason: Reason, at destination: PortDestination, isTimed: Bool) {
        (self.reason, self.destination, self.isTimed) = (reason, destination, isTimed)
    }

    /// Writes the words. The reading counterpart is `Words`.
    ///
    /// - Parameters:
    ///   - words: Room for `count`.
    ///   - mode: Index of the mode that the thread's loop runs while it waits. Nil if the thread only waits.
    package func write(to words: UnsafeMutablePointer<UInt32>, mode: Int?) {
        let modes = destination.place?.modes.load(ordering: .relaxed) ?? 0
        unsafe words[2] = reason.rawValue | (isTimed ? Words.timedFlag : 0)
        unsafe words[3] = UInt32(bitPattern: destination.place?.thread.load(ordering: .relaxed) ?? 0)
        unsafe words[4] = UInt32(bitPattern: destination.process)
        unsafe words[5] = mode.map { UInt32(truncatingIfNeeded: $0) } ?? .max
        unsafe Self.put(modes, to: words + 6)
        unsafe Self.put(UInt64(destination.nameAddress), to: words + 8)
        unsafe Self.put(UInt64(UInt(bitPattern: ObjectIdentifier(destination))), to: words + 10)
        unsafe Self.put(Self.mark, to: words)
    }

    /// Makes the words say that the thread waits for no port. One store.
    static func clear(_ words: UnsafeMutablePointer<UInt32>) { unsafe words[0] = 0 }

    private static func put(_ value: UInt64, to words: UnsafeMutablePointer<UInt32>) {
        unsafe words[0] = UInt32(truncatingIfNeeded: value)
        unsafe words[1] = UInt32(truncatingIfNeeded: value >> 32)
    }

    /// The bit of a mode. Modes with high numbers share one.
    fileprivate static func bit(of mode: Int?) -> UInt64 { mode.map { 1 << UInt64(min(max($0, 0), 63)) } ?? 0 }
}

extension PortWait {
    /// The words of a waiting thread, as another thread or process has read them.
    package struct Words: Hashable, Sendable {
        fileprivate static let timedFlag: UInt32 = 256

        /// What the thread waits for.
        package let reason: Reason
        /// Whether the wait has a limit.
        package let isTimed: Bool
        /// The kernel's id of the thread whose loop has the port. 0 if that is not exactly one loop of the process.
        package let thread: Int32
        /// The process that has the port, if it is another one; otherwise 0.
        package let process: Int32
        /// Address of the port's name as a C string; 0 for a port without one.
        package let name: UInt
        /// Identifies the connection: an address.
        package let connection: UInt
        private let mode: UInt32
        private let modes: UInt64

        /// Nil for memory that is no such wait.
        package init?(_ words: [UInt32]) {
            let pair = { (index: Int) in UInt64(words[index]) | UInt64(words[index + 1]) << 32 }
            guard words.count == PortWait.count, pair(0) == PortWait.mark,
                let reason = Reason(rawValue: words[2] & ~Self.timedFlag)
            else { return nil }
            self.reason = reason
            isTimed = words[2] & Self.timedFlag != 0
            (thread, process) = (Int32(bitPattern: words[3]), Int32(bitPattern: words[4]))
            (mode, modes) = (words[5], pair(6))
            (name, connection) = (UInt(pair(8)), UInt(pair(10)))
        }

        /// Whether the port is served while the thread that has it itself waits in the way that `other` says.
        package func isServed(during other: Words) -> Bool {
            other.mode != .max && modes & PortWait.bit(of: Int(other.mode)) != 0
        }
    }
}
