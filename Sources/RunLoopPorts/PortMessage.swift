import CRunLoopPorts
import Glibc
public import RunLoopKit

/// A message to be sent: an id of the sender's choice, and what goes with it.
public struct PortMessage: Sendable {
    /// The greatest sum of the components' bytes: 128 KiB (R57). For more, pass a descriptor of shared memory.
    public static let maximumSize = 131_072
    /// The most components a message can have.
    public static let maximumComponents = 64
    /// The most descriptors a message can have, the reply port's included.
    public static let maximumDescriptors = 253

    /// Any number; the receiver sees it as it is.
    public var id: Int32
    /// The content. Components may be empty.
    public var components: [[UInt8]]
    /// Open descriptors that the receiver gets duplicates of. They stay the caller's, who may close them once the message is sent.
    public var descriptors: [Int32]
    /// Where the receiver can send messages of its own. Sending it makes one new connection to this port.
    public var replyPort: LocalPort?

    /// Makes the message; it is checked when sent.
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

    /// A message with one component, a text's UTF-8.
    public init(id: Int32 = 0, text: String) { self.init(id: id, components: [Array(text.utf8)]) }

    /// Throws what R57 asks for, before anything is sent.
    func check() throws(RunLoopError) {
        guard components.count <= PortMessage.maximumComponents,
            components.reduce(0, { $0 + $1.count }) <= PortMessage.maximumSize
        else { throw RunLoopError(.messageTooLarge) }
        guard descriptors.count + (replyPort == nil ? 0 : 1) <= PortMessage.maximumDescriptors else {
            throw RunLoopError(.tooManyDescriptors)
        }
    }
}

/// Who is at the other end, by the kernel's word: who made the connection or listened for it (`SO_PEERCRED`), and for what comes in at
/// a reply port, who sent it (`SCM_CREDENTIALS`). A fork makes no difference to the former: its child goes by its parent's name.
public struct PortPeer: Hashable, Sendable {
    /// 0 if the process is not in this one's pid namespace.
    public let processID: Int32
    /// The effective user id when the connection was made, or the real one when the message was sent to a reply port.
    public let userID: UInt32
    /// The group id, likewise.
    public let groupID: UInt32

    /// For who wants to try what an ``LocalPort/Options/accepts`` says.
    public init(processID: Int32, userID: UInt32, groupID: UInt32) {
        self.processID = processID
        self.userID = userID
        self.groupID = groupID
    }
}

/// A message that came in, whole (R57), or a reply. May be kept, and handed to other threads: any thread may call its members.
///
/// It owns the descriptors that came with it: those not taken are closed when the last copy of the message goes.
public struct ReceivedMessage: Sendable {
    private let storage: MessageStorage
    /// Where replies go; nil in a reply.
    private let socket: MessageSocket?

    init(_ storage: MessageStorage, from socket: MessageSocket?) {
        self.storage = storage
        self.socket = socket
    }

    /// The sender's number.
    public var id: Int32 { storage.header.id }
    /// Who sent it, by the kernel's word; see ``PortPeer``.
    public var peer: PortPeer { PortPeer(storage.peer) }
    /// Whether the sender waits for a reply.
    public var expectsReply: Bool { storage.header.kind == .request }

    /// How many components there are, 0 to ``PortMessage/maximumComponents``.
    public var componentCount: Int { storage.header.componentCount }

    /// Copies of all components.
    public var components: [[UInt8]] { (0..<componentCount).map { component($0) } }

    /// A copy of one component's bytes. Traps on an index out of range.
    public func component(_ index: Int, file: StaticString = #fileID, line: UInt = #line) -> [UInt8] {
        withBytes(of: index, file: file, line: line) { bytes in unsafe bytes.withUnsafeBytes { unsafe Array($0) } }
    }

    /// The first component as text, malformed UTF-8 mended; empty if there is none.
    public var text: String { componentCount == 0 ? "" : String(decoding: component(0), as: UTF8.self) }

    /// One component's bytes where they came in, not copied. Traps on an index out of range.
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

    /// How many descriptors came, taken ones included, the reply port's not.
    public var descriptorCount: Int { storage.header.descriptorCount - (storage.header.hasReplyPort ? 1 : 0) }

    /// Hands a descriptor over to the caller, who must close it; nil if it was taken before or there is none at the index. Closed on exec.
    public func takeDescriptor(at index: Int) -> Int32? {
        index < descriptorCount ? storage.takeDescriptor(at: index) : nil
    }

    /// The port that the sender wants messages at; nil if there is none, or it was taken before.
    public func takeReplyPort(onInvalidation: (@Sendable (RemotePort) -> Void)? = nil) -> RemotePort? {
        guard storage.header.hasReplyPort, let taken = storage.takeDescriptor(at: descriptorCount) else { return nil }
        return RemotePort(MessageSocket(owning: taken), onInvalidation: onInvalidation)
    }

    /// Answers a request, now or later. Answering anything else, or once more, does nothing: nobody waits for it.
    ///
    /// - Parameter timeout: How long the caller blocks if the requester's queue is full; nil for ever.
    /// - Throws: `sendTimeout`, `portBecameInvalid` if the requester has gone, `transportError`, `messageTooLarge`,
    ///   `tooManyDescriptors`.
    public func reply(_ message: PortMessage, timeout: Duration? = .seconds(1)) throws(RunLoopError) {
        guard expectsReply, let socket else { return }
        try socket.send(message, kind: .reply, number: storage.header.number, timeout: timeout)
    }
}

extension PortPeer {
    init(_ peer: run_loop_peer) {
        self.init(processID: peer.pid, userID: peer.uid, groupID: peer.gid)
    }
}
