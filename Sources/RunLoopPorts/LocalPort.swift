import CRunLoopShims
import Glibc
public import RunLoopKit

/// Receives messages from other threads and processes and delivers them to its handler on a loop, as a version 1 source (R54).
///
/// Processes of the same user find a named port with ``RemotePort/init(_:in:timeout:onInvalidation:)``. A port without a name
/// is reached inside its process with ``RemotePort/init(to:onInvalidation:)``, and from elsewhere as the reply port of a
/// message.
///
/// One message is delivered per turn, and connections alternate. Each connection has a queue of its own in the kernel; when
/// that is full its sender waits or gets `sendTimeout`. Messages also wait there while the port is on no loop.
///
/// A port lives until it is invalidated, or until no holder and no loop has it any more. A loop that ends releases it, and it
/// can be added to another loop (R2). Any thread may call its members; not in a signal handler.
public final class LocalPort: Sendable {
    /// Called on the thread of a loop, which is `EventRunLoop.current`, never on two at once.
    public typealias Callback = @Sendable (ReceivedMessage) -> Void

    /// Why a connection was dropped. More may be added; switch with a default.
    public enum DropReason: String, Error, Sendable {
        /// `accepts` returned false.
        case peerNotAllowed = "peer_not_allowed"
        /// Its data does not begin like a message, or its kind is not one that a local port accepts.
        case notAMessage = "not_a_message"
        /// The lengths of its components do not add up to the length of what arrived.
        case wrongLengths = "wrong_lengths"
        /// It has more components than ``PortMessage/maximumComponents``.
        case tooManyComponents = "too_many_components"
        /// The descriptors that arrived do not match what the message says.
        case wrongDescriptors = "wrong_descriptors"
        /// It is longer than a message of the greatest size.
        case tooLarge = "too_large"
        /// The process ran out of descriptors while it received some: the message was refused, and the received descriptors
        /// were closed.
        case descriptorsLost = "descriptors_lost"
        /// The process has no descriptor left for one more connection.
        case outOfDescriptors = "out_of_descriptors"
        /// The kernel failed to receive.
        case transportError = "transport_error"
    }

    /// Callbacks of a port besides the one for messages. Each is called without locks held.
    public struct Options: Sendable {
        /// Whether a process may connect to the name. By default processes of the same effective user may. Called on the loop's
        /// thread.
        public var accepts: @Sendable (PortPeer) -> Bool = { $0.userID == LocalPort.ownUser }
        /// A connection was dropped because of an error of the peer or a shortage in this process. The peer sees its port
        /// become invalid. Called on the loop's thread.
        public var onDrop: (@Sendable (PortPeer, DropReason) -> Void)?
        /// The port was invalidated. Called once (R55), on the thread that invalidated it.
        public var onInvalidation: (@Sendable () -> Void)?

        /// The defaults.
        public init() {}
    }

    /// A struct instead of the bare closure: a closure in an Optional would be called through a thunk that is allocated each
    /// time.
    struct Boxed: Sendable {
        let call: Callback
    }

    /// Nil for an anonymous port.
    public let name: PortName?
    let receiver: PortReceiver
    fileprivate let anchor: EventSource

    /// A port without a name. It uses no descriptor before it has a connection.
    public init(options: Options = Options(), _ callback: @escaping Callback) {
        name = nil
        receiver = PortReceiver(options: options, callback)
        anchor = receiver.makeAnchor()
    }

    /// Creates a port that other processes can find by its name. Files that a dead process has left under the name are removed.
    ///
    /// - Throws: `portNameInUse` if a live process, this one included, has the name; `portDirectoryUnsafe`, `outOfResources`.
    public init(
        _ name: PortName,
        in directory: PortDirectory = .default,
        options: Options = Options(),
        _ callback: @escaping Callback
    ) throws(RunLoopError) {
        self.name = name
        receiver = PortReceiver(options: options, callback)
        anchor = receiver.makeAnchor()
        try receiver.listen(as: name, in: directory)
    }

    /// Whether it accepts messages.
    public var isValid: Bool { anchor.isValid }

    /// Ends the port permanently: removes it from all loops, releases the name, closes all connections, and frees the callbacks.
    /// Undelivered messages are dropped; a running handler completes.
    public func invalidate() {
        anchor.invalidate()
        receiver.close()
    }

    /// The number of connections.
    public var connectionCount: Int { receiver.connectionCount }
}

extension LocalPort {
    /// The user whose processes are accepted.
    static var ownUser: UInt32 { geteuid() }

    fileprivate func enter(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) throws(RunLoopError) {
        guard isValid else { throw RunLoopError(.portInvalid) }
        // Drops the failure of a mode that became common: it had no caller to whom it could be thrown.
        _ = receiver.takeFailure(on: loop, mode)
        // Another thread may invalidate it now.
        do throws(RunLoopError) {
            try loop.attach(source: anchor, to: mode)
        } catch {
            throw error.code == .itemInvalid ? RunLoopError(.portInvalid) : error
        }
        if let failure = receiver.takeFailure(on: loop, mode) {
            loop.remove(anchor, from: mode)
            throw failure
        }
    }
}

extension EventRunLoop {
    /// Adds a port to a mode: its messages are delivered in runs of that mode. As for an `EventSource`, it may be on several
    /// loops and in several modes.
    ///
    /// - Throws: `portInvalid`, `loopEnded`, `outOfResources`; nothing is added then.
    public func add(_ port: LocalPort, to mode: Mode = .default) throws(RunLoopError) { try port.enter(self, mode) }

    /// Removes a port from a mode; messages wait until it is in a mode again.
    public func remove(_ port: LocalPort, from mode: Mode = .default) { remove(port.anchor, from: mode) }

    /// Whether the port is in a mode.
    public func contains(_ port: LocalPort, in mode: Mode = .default) -> Bool { contains(port.anchor, in: mode) }
}

/// Calls through the frame by which readers of captured stacks recognise a port's handler (R64).
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
