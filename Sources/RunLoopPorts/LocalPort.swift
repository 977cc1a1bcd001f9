import CRunLoopShims
import Glibc
public import RunLoopKit

/// Receives messages from other threads and processes, and hands them to its handler on a loop: a source of version 1 (R54).
///
/// With a name, processes of the same user find it by ``RemotePort/init(_:in:timeout:onInvalidation:)``. Without one it is reached
/// inside its process by ``RemotePort/init(to:onInvalidation:)``, and from elsewhere as the reply port of a message.
///
/// One message is delivered a turn, connections taking turns. Each connection has a queue of its own in the kernel; when that is full
/// its sender waits or gets `sendTimeout`. Messages wait there also while the port is on no loop.
///
/// A port lives until it is invalidated, or until neither a holder nor a loop has it any more. A loop that ends lets go of it, and it
/// can be added to another (R2). Any thread may call its members; not in a signal handler.
public final class LocalPort: Sendable {
    /// Called on a loop's thread, never on two at once.
    public typealias Handler = @Sendable (ReceivedMessage) -> Void

    /// Why a connection was dropped. More may come; switch with a default.
    public enum DropReason: String, Error, Sendable {
        /// `accepts` said no.
        case peerNotAllowed
        /// It does not begin as a message does, or is none that a local port takes.
        case notAMessage
        case wrongLengths
        case tooManyComponents
        /// Other descriptors came than the message says.
        case wrongDescriptors
        case tooLarge
        /// The process ran out of descriptors while it received some: the message was refused, and those that came were closed.
        case descriptorsLost
        /// The process has no descriptor left for one more connection.
        case outOfDescriptors
        /// The kernel failed to receive.
        case transportError
    }

    /// What a port may be told besides its messages. Each is called without locks held.
    public struct Options: Sendable {
        /// Whether a process may connect to the name. By default those of the same effective user may. Called on the loop's thread.
        public var accepts: @Sendable (PortPeer) -> Bool = { $0.userID == LocalPort.ownUser }
        /// A connection was dropped for a fault of the peer's, or a shortage here. The peer sees its port become invalid. Called on the
        /// loop's thread.
        public var onDrop: (@Sendable (PortPeer, DropReason) -> Void)?
        /// The port was invalidated: told once (R55), on the thread that did it.
        public var onInvalidation: (@Sendable () -> Void)?

        /// The defaults.
        public init() {}
    }

    /// Not the bare closure: in an Optional that would be called through a thunk, allocated each time.
    struct Boxed: Sendable {
        let call: Handler
    }

    /// Nil for an anonymous port.
    public let name: PortName?
    let receiver: PortReceiver
    private let anchor: EventSource

    /// A port without a name. Takes no descriptor before it has a connection.
    public init(options: Options = Options(), handler: @escaping Handler) {
        name = nil
        receiver = PortReceiver(options: options, handler: handler)
        anchor = receiver.makeAnchor()
    }

    /// A port that other processes can find by its name. What a dead process has left under the name is taken away.
    ///
    /// - Throws: `portNameInUse` if a live process, this one included, has it; `portDirectoryUnsafe`, `outOfResources`.
    public init(
        _ name: PortName,
        in directory: PortDirectory = .default,
        options: Options = Options(),
        handler: @escaping Handler
    ) throws(RunLoopError) {
        self.name = name
        receiver = PortReceiver(options: options, handler: handler)
        anchor = receiver.makeAnchor()
        try receiver.listen(as: name, in: directory)
    }

    /// Whether it takes messages.
    public var isValid: Bool { anchor.isValid }

    /// Ends it for good: takes it off all loops, gives the name back, hangs up on everyone. Messages not yet delivered are dropped, a
    /// handler that runs already runs to its end.
    public func invalidate() {
        anchor.invalidate()
        receiver.close()
    }

    /// How many are connected.
    public var connectionCount: Int { receiver.connectionCount }
}

extension LocalPort {
    /// The user whose processes are let in.
    static var ownUser: UInt32 { geteuid() }

    fileprivate func enter(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) throws(RunLoopError) {
        guard isValid else { throw RunLoopError(.portInvalid) }
        try loop.attach(source: anchor, to: mode)
        if let failure = receiver.takeFailure() {
            loop.remove(anchor, from: mode)
            throw failure
        }
    }

    fileprivate func leave(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) { loop.remove(anchor, from: mode) }

    fileprivate func isIn(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) -> Bool { loop.contains(anchor, in: mode) }
}

extension EventRunLoop {
    /// Adds a port to a mode: its messages are delivered in runs of that mode. As for an `EventSource`; several loops and modes are
    /// fine.
    ///
    /// - Throws: `portInvalid`, `loopEnded`, `outOfResources`; nothing is added then.
    public func add(_ port: LocalPort, to mode: Mode = .default) throws(RunLoopError) { try port.enter(self, mode) }

    /// Takes a port out of a mode; messages wait until it is in one again.
    public func remove(_ port: LocalPort, from mode: Mode = .default) { port.leave(self, mode) }

    /// Whether the port is in a mode.
    public func contains(_ port: LocalPort, in mode: Mode = .default) -> Bool { port.isIn(self, mode) }
}

/// By the frame that readers of captured stacks know a port's handler by (R64).
func callOut(_ handler: LocalPort.Boxed, message: ReceivedMessage) {
    var call = (handler, message)
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_calling_out_to_a_message_handler(
            { context in
                let (handler, message) = unsafe context.assumingMemoryBound(to: (LocalPort.Boxed, ReceivedMessage).self)
                    .pointee
                handler.call(message)
            },
            context
        )
    }
}
