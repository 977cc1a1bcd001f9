import CRunLoopPorts
import Glibc
public import RunLoopKit

/// A message to be sent: an id of the sender's choice, and its content.
public struct PortMessage: Sendable {
    /// The greatest sum of the components' bytes: 128 KiB (R57). For more, pass a descriptor of shared memory.
    public static let maximumSize = 131_072
    /// The most components a message can have.
    public static let maximumComponents = 64
    /// The most descriptors a message can have, the reply port's included.
    public static let maximumDescriptors = 253

    /// Any number; the receiver gets it unchanged.
    public var id: Int32
    /// The content. Components may be empty.
    public var components: [[UInt8]]
    /// Open descriptors of which the receiver gets duplicates. They stay the caller's, who may close them once the message is
    /// sent.
    public var descriptors: [Int32]
    /// The port to which the receiver can send messages of its own. Sending it makes one new connection to this port.
    public var replyPort: LocalPort?

    /// Creates the message; it is checked when sent.
    public init(
        id: Int32 = 0,
        components: [[UInt8]] = [],
        descriptors: [Int32] = [],
        replyPort: LocalPort? = nil
    ) {
        self.id = id
        self.components = components
        self.descriptors = descriptors
        self.replyPort = replyPort
    }

    /// A message with one component, the UTF-8 of a text.
    public init(id: Int32 = 0, text: String) { self.init(id: id, components: [Array(text.utf8)]) }

    /// Throws the errors that R57 requires, before anything is sent.
    func check() throws(RunLoopError) {
        guard components.count <= PortMessage.maximumComponents,
            components.reduce(0, { $0 + $1.count }) <= PortMessage.maximumSize
        else { throw RunLoopError(.messageTooLarge) }
        guard descriptors.count + (replyPort == nil ? 0 : 1) <= PortMessage.maximumDescriptors else {
            throw RunLoopError(.tooManyDescriptors)
        }
    }
}

/// The process at the other end, as reported by the kernel: the one that made the connection or listened for it
/// (`SO_PEERCRED`), and for what arrives at a reply port, the sender (`SCM_CREDENTIALS`). A fork does not change the former: a
/// child is reported as its parent.
public struct PortPeer: Hashable, Sendable {
    /// 0 if the process is not in this one's pid namespace.
    public let processID: Int32
    /// The effective user id when the connection was made, or the real one when the message was sent to a reply port.
    public let userID: UInt32
    /// The group id, likewise.
    public let groupID: UInt32

    /// For testing an ``LocalPort/Options/accepts`` closure.
    public init(processID: Int32, userID: UInt32, groupID: UInt32) {
        self.processID = processID
        self.userID = userID
        self.groupID = groupID
    }
}

/// A received message, whole (R57), or a reply. It may be kept and passed to other threads: any thread may call its members.
///
/// It owns the descriptors that arrived with it: those not taken are closed when the last copy of the message is released.
public struct ReceivedMessage: Sendable {
    private let storage: MessageStorage
    /// The connection for replies; nil in a reply.
    private let socket: MessageSocket?

    init(_ storage: MessageStorage, from socket: MessageSocket?) {
        self.storage = storage
        self.socket = socket
    }

    /// The id that the sender chose.
    public var id: Int32 { storage.header.id }
    /// The sender, as reported by the kernel; see ``PortPeer``.
    public var peer: PortPeer { PortPeer(storage.peer) }
    /// Whether the sender waits for a reply.
    public var expectsReply: Bool { storage.header.kind == .request }

    /// The number of components, 0 to ``PortMessage/maximumComponents``.
    public var componentCount: Int { storage.header.componentCount }

    /// Copies of all components.
    public var components: [[UInt8]] { (0..<componentCount).map { component($0) } }

    /// A copy of one component's bytes. Traps on an index out of range.
    public func component(_ index: Int, file: StaticString = #fileID, line: UInt = #line) -> [UInt8] {
        withBytes(of: index, file: file, line: line) { bytes in unsafe bytes.withUnsafeBytes { unsafe Array($0) } }
    }

    /// The first component as text, with malformed UTF-8 replaced; empty if there is no component.
    public var text: String { componentCount == 0 ? "" : String(decoding: component(0), as: UTF8.self) }

    /// One component's bytes in place, without a copy. Traps on an index out of range.
    public func withBytes<Result: ~Copyable, Failure: Error>(
        of index: Int,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: (RawSpan) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let isThere = 0..<componentCount ~= index
        require(isThere, "A message has no component \(index); it has \(componentCount).", file: file, line: line)
        let all = unsafe storage.bytes
        let range = unsafe storage.header.range(of: index, in: all.bytes)
        return try unsafe body(UnsafeRawBufferPointer(rebasing: all[range]).bytes)
    }

    /// The number of descriptors that arrived, including taken ones, without the reply port's.
    public var descriptorCount: Int { storage.header.descriptorCount - (storage.header.hasReplyPort ? 1 : 0) }

    /// Transfers a descriptor to the caller, who must close it; nil if it was taken before or there is none at the index.
    /// Closed on exec.
    public func takeDescriptor(at index: Int) -> Int32? {
        index < descriptorCount ? storage.takeDescriptor(at: index) : nil
    }

    /// The port at which the sender accepts messages; nil if there is none, or it was taken before.
    public func takeReplyPort(onInvalidation: (@Sendable (RemotePort) -> Void)? = nil) -> RemotePort? {
        guard storage.header.hasReplyPort, let taken = storage.takeDescriptor(at: descriptorCount) else { return nil }
        return RemotePort(MessageSocket(owning: taken), onInvalidation: onInvalidation)
    }

    /// Replies to a request, now or later. A reply to anything else, or a second reply, has no effect: no client waits for it.
    ///
    /// - Parameter timeout: How long the caller blocks if the requester's queue is full; nil for no limit.
    /// - Throws: `sendTimeout`, `portBecameInvalid` if the requester has closed, `transportError`, `messageTooLarge`,
    ///   `tooManyDescriptors`.
    public func reply(_ message: PortMessage, timeout: Duration? = .seconds(1)) throws(RunLoopError) {
        guard expectsReply, let socket else { return }
        try socket.send(message, kind: .reply, number: storage.header.number, timeout: timeout, to: nil)
    }
}

extension PortPeer {
    init(_ peer: run_loop_peer) {
        self.init(processID: peer.pid, userID: peer.uid, groupID: peer.gid)
    }
}
