import CRunLoopPorts
import CRunLoopShims
import Glibc
import RunLoopKit

/// One end of a connection. It is closed when the last reference is released, so that its number cannot be reused for another
/// file in the middle of a call.
final class MessageSocket: Sendable {
    let descriptor: Int32
    private let generation = run_loop_generation()

    /// Takes ownership of an open socket.
    init(owning descriptor: Int32) { self.descriptor = descriptor }

    deinit { close(descriptor) }

    /// Two connected ends.
    static func pair() throws(RunLoopError) -> (MessageSocket, MessageSocket) {
        var first: Int32 = -1
        var second: Int32 = -1
        let failure = unsafe withUnsafeTemporaryAllocation(of: Int32.self, capacity: 2) { ends in
            guard let start = ends.baseAddress else { return -EMFILE }
            let failure = unsafe run_loop_message_pair(start)
            if failure == 0 { unsafe (first, second) = (ends[0], ends[1]) }
            return failure
        }
        if failure < 0 { throw RunLoopError.port(-failure) }
        return (MessageSocket(owning: first), MessageSocket(owning: second))
    }

    /// Ends the connection for both sides, even if another process has a copy of this end. Does nothing in a forked child that
    /// inherited it: the connection belongs to the parent, and the child only needs to close its copy.
    func hangUp() {
        guard generation == run_loop_generation() else { return }
        shutdown(descriptor, Int32(SHUT_RDWR))
    }

    /// The process that connected, or listened, at the other end.
    var peer: run_loop_peer {
        var peer = run_loop_peer()
        _ = unsafe run_loop_message_peer(descriptor, &peer)
        return peer
    }
}

// MARK: - Sending

extension MessageSocket {
    /// Sends a message whole or not at all, waiting up to `timeout` (nil: without limit) for room in the receiver's queue (R56,
    /// R57).
    ///
    /// One system call if there is room; the components are not copied here.
    ///
    /// - Parameter destination: the receiver, for readers of the stack of a thread that waits for room.
    func send(
        _ message: PortMessage,
        kind: MessageHeader.Kind,
        number: UInt32 = 0,
        timeout: Duration?,
        to destination: PortDestination?
    ) throws(RunLoopError) {
        try message.check()
        guard let port = message.replyPort else {
            return try send(message, kind, number: number, with: message.descriptors, timeout: timeout, to: destination)
        }
        let (ours, theirs) = try MessageSocket.pair()
        // Both ends were made here: only the messages can identify the process that got the other end.
        run_loop_message_tell_senders(ours.descriptor)
        // The receiver may answer at once, so our end exists before the message is sent.
        let connection = try port.receiver.adopt(ours)
        do throws(RunLoopError) {
            // Open until it is sent.
            defer { withExtendedLifetime(theirs) {} }
            let descriptors = message.descriptors + [theirs.descriptor]
            try send(message, kind, number: number, with: descriptors, timeout: timeout, to: destination)
        } catch {
            // Its loop would see the other end close, too, but may not run for a long time: each attempt would keep a descriptor.
            port.receiver.forget(connection)
            throw error
        }
    }

    private func send(
        _ message: PortMessage,
        _ kind: MessageHeader.Kind,
        number: UInt32,
        with descriptors: [Int32],
        timeout: Duration?,
        to destination: PortDestination?
    ) throws(RunLoopError) {
        let header = MessageHeader(
            kind: kind,
            hasReplyPort: message.replyPort != nil,
            id: message.id,
            number: number,
            componentCount: message.components.count,
            descriptorCount: descriptors.count
        )
        let failure = unsafe MessageSocket.withParts(header, message.components) { parts in
            unsafe send(parts, with: descriptors, timeout: timeout, to: destination)
        }
        if failure != 0 { throw MessageSocket.error(sending: failure) }
    }

    /// Returns 0 or the errno; ETIMEDOUT if there was no room in time.
    private func send(
        _ parts: UnsafeBufferPointer<iovec>,
        with descriptors: [Int32],
        timeout: Duration?,
        to destination: PortDestination?
    ) -> Int32 {
        guard let start = parts.baseAddress else { return EINVAL }
        // The deadline is computed only when there is something to wait for: a clock read for each message is noticeable.
        var deadline: MonotonicInstant?
        while true {
            let failure = unsafe run_loop_message_send(
                descriptor,
                start,
                Int32(parts.count),
                descriptors,
                Int32(descriptors.count)
            )
            if failure != -EAGAIN { return -failure }
            let end = deadline ?? .after(timeout)
            deadline = end
            let wait = PortWait(.room, at: destination ?? PortDestination(), isTimed: timeout != nil)
            guard waitForRoom(until: end, wait) else { return ETIMEDOUT }
        }
    }

    private func waitForRoom(until deadline: MonotonicInstant, _ wait: PortWait) -> Bool {
        while true {
            let forever = deadline == .distantFuture
            let left = forever ? -1 : max(0, MonotonicInstant.now.duration(to: deadline).nanoseconds)
            let result = pollForRoom(for: left, wait)
            if result > 0 { return true }
            let isWorthAnotherTry = result == 0 || result == -EINTR
            guard isWorthAnotherTry, left != 0 else { return false }
        }
    }

    /// As `run_loop_message_wait_writable`, with the words of the wait behind the polled descriptor.
    private func pollForRoom(for nanoseconds: Int64, _ wait: PortWait) -> Int32 {
        let words = PortWait.count * MemoryLayout<UInt32>.stride
        return unsafe withUnsafeTemporaryAllocation(
            byteCount: PortWait.offsetBehindPolled + words,
            alignment: MemoryLayout<UInt64>.alignment
        ) { bytes in
            guard let start = bytes.baseAddress else { return -EINTR }
            let behind = unsafe start + PortWait.offsetBehindPolled
            unsafe wait.write(to: behind.bindMemory(to: UInt32.self, capacity: PortWait.count), mode: nil)
            let request = unsafe start.bindMemory(to: pollfd.self, capacity: 1)
            return unsafe run_loop_message_wait_writable(descriptor, nanoseconds, request)
        }
    }

    private static func error(sending errno: Int32) -> RunLoopError {
        switch errno {
        case ETIMEDOUT: RunLoopError(.sendTimeout)
        case EPIPE, ECONNRESET, ENOTCONN: RunLoopError(.portBecameInvalid, errno: errno)
        // The kernel's limit may be lower than ours.
        case EMSGSIZE: RunLoopError(.messageTooLarge, errno: errno)
        default: RunLoopError(.transportError, errno: errno)
        }
    }
}

// MARK: - Parts

extension MessageSocket {
    /// Up to this size a message is copied into one buffer: the kernel takes one part faster than several. (On the stack up to
    /// 1,024 bytes.)
    private static let smallMessage = 4608

    /// Calls `body` with the header and the components; the components of a larger message are not copied.
    private static func withParts(
        _ header: MessageHeader,
        _ components: [[UInt8]],
        _ body: (UnsafeBufferPointer<iovec>) -> Int32
    ) -> Int32 {
        let total = components.reduce(header.size) { $0 + $1.count }
        let isSmall = total <= smallMessage
        return unsafe withUnsafeTemporaryAllocation(byteCount: isSmall ? total : header.size, alignment: 4) {
            bytes in
            unsafe header.write(components, to: bytes)
            if isSmall {
                unsafe append(components, at: header.size, to: bytes)
                var part = unsafe iovec(iov_base: bytes.baseAddress, iov_len: total)
                return unsafe withUnsafePointer(to: &part) { unsafe body(UnsafeBufferPointer(start: $0, count: 1)) }
            }
            return unsafe withUnsafeTemporaryAllocation(of: iovec.self, capacity: components.count + 1) { parts in
                unsafe parts.initializeElement(at: 0, to: iovec(iov_base: bytes.baseAddress, iov_len: bytes.count))
                return unsafe gather(components[...], parts, body)
            }
        }
    }

    private static func append(_ components: [[UInt8]], at start: Int, to bytes: UnsafeMutableRawBufferPointer) {
        var offset = start
        for component in components {
            unsafe UnsafeMutableRawBufferPointer(rebasing: bytes[offset...]).copyBytes(from: component)
            offset += component.count
        }
    }

    /// Pins one component after the other, one stack level per component, 64 at most.
    private static func gather(
        _ rest: ArraySlice<[UInt8]>,
        _ parts: UnsafeMutableBufferPointer<iovec>,
        _ body: (UnsafeBufferPointer<iovec>) -> Int32
    ) -> Int32 {
        guard let next = rest.first else { return unsafe body(UnsafeBufferPointer(parts)) }
        return unsafe next.withUnsafeBytes { bytes in
            // The kernel only reads the memory.
            let base = unsafe UnsafeMutableRawPointer(mutating: bytes.baseAddress)
            unsafe parts.initializeElement(at: rest.startIndex + 1, to: iovec(iov_base: base, iov_len: bytes.count))
            return unsafe gather(rest.dropFirst(), parts, body)
        }
    }
}
