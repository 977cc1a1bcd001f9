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
