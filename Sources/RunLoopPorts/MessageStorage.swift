import CRunLoopPorts
import Glibc
import Locking
import RunLoopKit

/// The bytes and descriptors of one received message.
///
/// Sendable: everything except the descriptors is written only by `ReceiveSpace.receive`, while no one else has a reference (a
/// new object, or one found uniquely referenced), and is read-only afterwards; the descriptors are behind a lock.
@safe
final class MessageStorage: @unchecked Sendable {
    private let memory: UnsafeMutableRawBufferPointer
    fileprivate(set) var header = MessageHeader(kind: .message)
    fileprivate(set) var length = 0
    fileprivate(set) var peer = run_loop_peer()
    /// -1 where a descriptor was taken. The remaining ones are closed with the message.
    private let descriptors = ForkSafeMutex<[Int32]>([])

    fileprivate init(capacity: Int) {
        unsafe memory = .allocate(byteCount: capacity, alignment: 16)
    }

    deinit {
        closeDescriptors()
        unsafe memory.deallocate()
    }

    fileprivate var capacity: Int { unsafe memory.count }
    fileprivate var writable: UnsafeMutableRawBufferPointer { unsafe memory }
    var bytes: UnsafeRawBufferPointer { unsafe UnsafeRawBufferPointer(rebasing: memory[..<length]) }

    fileprivate func own(_ received: UnsafeBufferPointer<Int32>) {
        guard !received.isEmpty else { return }
        descriptors.withLock { unsafe $0 = Array(received) }
    }

    /// Transfers a descriptor to the caller, who closes it; nil if it was taken before.
    func takeDescriptor(at index: Int) -> Int32? {
        descriptors.withLock { descriptors in
            guard descriptors.indices.contains(index), descriptors[index] >= 0 else { return nil }
            defer { descriptors[index] = -1 }
            return descriptors[index]
        }
    }

    private func closeDescriptors() {
        let rest = descriptors.withLock { $0.take() }
        for descriptor in rest where descriptor >= 0 { close(descriptor) }
    }
}

/// The buffers into which messages of one receiver are read. Guarded by the receiver's lock; receiving never blocks.
///
/// Most messages are small, and the recipient may keep them, so they are read into small storage. The part that does not fit goes
/// into a spare area of the greatest size, and both parts are then copied into one storage. After that, large storage is used
/// until messages are small again.
@safe
struct ReceiveSpace: ~Copyable {
    /// The result of reading from a socket.
    enum Reception {
        case message(MessageStorage)
        case nothing
        /// The peer has closed, and everything it had sent was received.
        case closed
        case refused(LocalPort.DropReason)
        case failed(errno: Int32)
    }

    private static let smallCapacity = 4096
    private static let largestMessage = MessageHeader.maximumSize + PortMessage.maximumSize
    // One extra byte detects a message that is too long.
    private let overflow = UnsafeMutableRawBufferPointer.allocate(byteCount: largestMessage + 1, alignment: 16)
    private var expectsLarge = false
    /// The latest message's storage, if it held no descriptors; reused when there is no other reference to it.
    private var spare: MessageStorage?

    deinit { unsafe overflow.deallocate() }

    /// Receives the next message from a socket, whole or not at all (R57). `peer` is the sender if the kernel does not report
    /// one.
    mutating func receive(from socket: MessageSocket, sentBy peer: run_loop_peer) -> Reception {
        let storage = takeStorage()
        return unsafe withUnsafeTemporaryAllocation(of: Int32.self, capacity: Int(RUN_LOOP_MESSAGE_DESCRIPTORS)) {
            fds in
            guard let start = fds.baseAddress else { return .nothing }
            var count: Int32 = 0
            let length = unsafe receive(from: socket, sentBy: peer, into: storage, start, &count)
            let received = unsafe UnsafeBufferPointer(start: start, count: Int(count))
            guard length > 0 else {
                // An empty message can carry descriptors.
                for index in received.indices { unsafe close(received[index]) }
                spare = storage
                return Self.reception(failure: length)
            }
            return unsafe finish(storage, length: Int(length), received)
        }
    }

    private mutating func takeStorage() -> MessageStorage {
        let capacity = expectsLarge ? Self.largestMessage : Self.smallCapacity
        if isKnownUniquelyReferenced(&spare), let storage = spare.take(), storage.capacity == capacity {
            return storage
        }
        spare = nil
        return MessageStorage(capacity: capacity)
    }

    private func receive(
        from socket: MessageSocket,
        sentBy peer: run_loop_peer,
        into storage: MessageStorage,
        _ descriptors: UnsafeMutablePointer<Int32>,
        _ count: inout Int32
    ) -> Int32 {
        unsafe withUnsafeTemporaryAllocation(of: iovec.self, capacity: 2) { parts in
            guard let start = parts.baseAddress else { return -EAGAIN }
            let area = unsafe storage.writable
            unsafe parts.initializeElement(at: 0, to: iovec(iov_base: area.baseAddress, iov_len: area.count))
            unsafe parts.initializeElement(at: 1, to: iovec(iov_base: overflow.baseAddress, iov_len: overflow.count))
            // A separate variable: a long access to the object's property would be tracked during the system call.
            var sender = peer
            defer { storage.peer = sender }
            return unsafe run_loop_message_receive(socket.descriptor, start, 2, descriptors, &count, &sender)
        }
    }

    private static func reception(failure: Int32) -> Reception {
        switch -failure {
        case 0: .closed
        case EAGAIN: .nothing
        case EMSGSIZE: .refused(.tooLarge)
        case EMFILE: .refused(.descriptorsLost)
        case let errno: .failed(errno: errno)
        }
    }

    private mutating func finish(
        _ storage: MessageStorage,
        length: Int,
        _ descriptors: UnsafeBufferPointer<Int32>
    ) -> Reception {
        let whole = length <= storage.capacity ? storage : join(storage, length)
        unsafe whole.own(descriptors)
        whole.length = length
        expectsLarge = length > Self.smallCapacity
        guard length <= Self.largestMessage else { return .refused(.tooLarge) }
        do {
            unsafe whole.header = try MessageHeader.read(whole.bytes.bytes, descriptors: descriptors.count)
        } catch {
            return .refused(error)
        }
        if descriptors.isEmpty { spare = whole }
        return .message(whole)
    }

    /// Copies a message that overflowed into one storage.
    private func join(_ storage: MessageStorage, _ length: Int) -> MessageStorage {
        let whole = MessageStorage(capacity: max(length, Self.largestMessage))
        whole.peer = storage.peer
        unsafe whole.writable.copyMemory(from: UnsafeRawBufferPointer(storage.writable))
        let rest = unsafe UnsafeRawBufferPointer(rebasing: overflow[..<(length - storage.capacity)])
        unsafe UnsafeMutableRawBufferPointer(rebasing: whole.writable[storage.capacity...]).copyMemory(from: rest)
        return whole
    }
}
