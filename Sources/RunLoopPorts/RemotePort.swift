import CRunLoopPorts
import Glibc
import Locking
public import RunLoopKit

/// The sending side of a port: sends messages, and requests that are replied to (R54, R56).
///
/// Any thread may call its members; messages of one thread arrive in order. On a loop, the port notices when the other side
/// closes: `EventRunLoop/add(_:to:)-(RemotePort,_)`. Otherwise it notices at the next message.
public final class RemotePort: Sendable {
    let channel: RemoteChannel
    let source: DescriptorSource
    let borrowed = ForkSafeMutex<Set<Borrowed>>([])

    /// Connects to the port with a name.
    ///
    /// - Parameters:
    ///   - timeout: How long the caller blocks if more clients connect than the receiver can accept.
    ///   - onInvalidation: Called once, on the thread that finds that the other side has closed, or that invalidates the port;
    ///     without locks held.
    /// - Throws: `noSuchPort`, `sendTimeout`, `portDirectoryUnsafe`, `outOfResources`, `transportError`.
    public convenience init(
        _ name: PortName,
        in directory: PortDirectory = .default,
        timeout: Duration = .seconds(1),
        onInvalidation: (@Sendable (RemotePort) -> Void)? = nil
    ) throws(RunLoopError) {
        let fd = run_loop_message_socket()
        if fd < 0 { throw RunLoopError.port(-fd) }
        let socket = MessageSocket(owning: fd)
        let handle = try directory.open()
        let nanoseconds = max(0, timeout.nanoseconds)
        let failure = unsafe run_loop_message_connect(fd, handle.path(of: name.socketFile), nanoseconds)
        if failure < 0 { throw RemotePort.error(connecting: -failure) }
        let destination = NamedPlaces.destination(NamedPlaces.Address(name: name, directory: directory), socket.peer)
        self.init(socket, to: destination, onInvalidation: onInvalidation)
    }

    /// Connects to a port of this process, which may have no name.
    ///
    /// - Throws: `portInvalid`, `outOfResources`; `loopEnded` if the port is only on loops that are just ending, or are a forked child's parent's.
    public convenience init(
        to port: LocalPort,
        onInvalidation: (@Sendable (RemotePort) -> Void)? = nil
    ) throws(RunLoopError) {
        let (ours, theirs) = try MessageSocket.pair()
        try port.receiver.adopt(theirs)
        self.init(ours, to: PortDestination(port.receiver.place), onInvalidation: onInvalidation)
    }

    /// - Parameter destination: the receiver, as far as it is known.
    init(
        _ socket: MessageSocket,
        to destination: PortDestination = PortDestination(),
        onInvalidation: (@Sendable (RemotePort) -> Void)?
    ) {
        let channel = RemoteChannel(socket, to: destination)
        self.channel = channel
        source = DescriptorSource(reading: socket.descriptor) { channel.deliver() }
        // Weak: a holder that has released the port needs no notification.
        channel.onClose { [weak self] in
            guard let self else { return }
            source.invalidate()
            onInvalidation?(self)
        }
    }

    deinit {
        // The loop's reference to the source would keep the connection alive.
        source.invalidate()
        channel.close(RunLoopError(.portBecameInvalid))
    }

    /// Whether the other side was there at the last check.
    public var isValid: Bool { channel.isOpen }

    /// The process that listened at the other end when the connection was made, as reported by the kernel. For the reply port
    /// of a message: the process that made it.
    public var peer: PortPeer { PortPeer(channel.peer) }

    /// Closes the connection. Requests in progress end with `portBecameInvalid`.
    public func invalidate() { channel.close(RunLoopError(.portBecameInvalid)) }

    /// Sends a message that expects no reply. It is sent whole or not at all (R57).
    ///
    /// - Parameter timeout: How long the caller blocks if the receiver's queue is full; zero tries once; nil for no limit.
    /// - Throws: `sendTimeout`, `portInvalid`, `portBecameInvalid`, `transportError` (R56); `messageTooLarge`,
    ///   `tooManyDescriptors` (R57); with a reply port, `outOfResources` and `loopEnded`.
    public func send(_ message: PortMessage, timeout: Duration? = .seconds(1)) throws(RunLoopError) {
        try channel.send(message, kind: .message, timeout: timeout)
    }

    private static func error(connecting errno: Int32) -> RunLoopError {
        switch errno {
        case ENOENT, ECONNREFUSED: RunLoopError(.noSuchPort)
        case EAGAIN: RunLoopError(.sendTimeout)
        default: RunLoopError.port(errno)
        }
    }
}

extension EventRunLoop {
    /// Adds a port to a mode: in runs of that mode it notices when the other side closes. Requests that wait in that mode also
    /// become cheaper. The loop does not retain the port.
    ///
    /// - Throws: `portInvalid`, `loopEnded`, `outOfResources`; nothing is added then.
    public func add(_ port: RemotePort, to mode: Mode = .default) throws(RunLoopError) {
        try port.enter(self, mode)
    }

    /// Removes a port from a mode.
    public func remove(_ port: RemotePort, from mode: Mode = .default) { remove(port.source, from: mode) }

    /// Whether the port is in a mode.
    public func contains(_ port: RemotePort, in mode: Mode = .default) -> Bool { contains(port.source, in: mode) }
}

/// A remote port's connection, and the requests on it that wait for replies.
///
/// Any thread that reads the connection passes each reply to the request that waits for it.
final class RemoteChannel: Sendable {
    typealias Outcome = Result<ReceivedMessage, RunLoopError>

    /// A request that waits for a reply. Called once, without locks held.
    protocol Waiter: AnyObject, Sendable {
        func finish(_ outcome: Outcome)
    }

    let socket: MessageSocket
    /// The process that listened, or that made the other end; it sends the replies.
    let peer: run_loop_peer
    let destination: PortDestination
    private let state = ForkSafeMutex(State())
    private let space = ForkSafeMutex(ReceiveSpace())

    private struct State: Sendable {
        var isOpen = true
        var lastNumber: UInt32 = 0
        var waiters: [UInt32: any Waiter] = [:]
        var onClose: (@Sendable () -> Void)?
    }

    init(_ socket: MessageSocket, to destination: PortDestination) {
        self.socket = socket
        self.destination = destination
        peer = socket.peer
    }

    var isOpen: Bool { state.withLock { $0.isOpen } }

    func onClose(_ notice: @escaping @Sendable () -> Void) { state.withLock { $0.onClose = notice } }

    func send(
        _ message: PortMessage,
        kind: MessageHeader.Kind,
        number: UInt32 = 0,
        timeout: Duration?
    ) throws(RunLoopError) {
        guard isOpen else { throw RunLoopError(.portInvalid) }
        do {
            try socket.send(message, kind: kind, number: number, timeout: timeout, to: destination)
        } catch {
            if error.code == .portBecameInvalid { close(error) }
            throw error
        }
    }

    /// Registers a waiter, and returns the request's number. Throws `portInvalid`.
    func enter(_ waiter: some Waiter) throws(RunLoopError) -> UInt32 {
        try state.withLock { state throws(RunLoopError) in
            guard state.isOpen else { throw RunLoopError(.portInvalid) }
            // 0 means no request.
            repeat { state.lastNumber &+= 1 } while state.lastNumber == 0 || state.waiters[state.lastNumber] != nil
            state.waiters[state.lastNumber] = waiter
            return state.lastNumber
        }
    }

    /// Removes a waiter; nil if it has been called or is being called.
    @discardableResult
    func leave(_ number: UInt32) -> (any Waiter)? { state.withLock { $0.waiters.removeValue(forKey: number) } }

    /// Reads one reply from the connection and passes it on. Never blocks.
    func deliver() -> DescriptorSource.Finding {
        switch space.withLock({ $0.receive(from: socket, sentBy: peer) }) {
        case .message(let storage) where storage.header.kind == .reply:
            // If there is no waiter, the reply was too late, and is dropped with its descriptors.
            leave(storage.header.number)?.finish(.success(ReceivedMessage(storage, from: nil)))
        case .nothing: return .nothing
        // The peer has closed without reading all messages; what it sent is still there, followed by the end of the stream.
        case .failed(ECONNRESET): break
        case .closed: close(RunLoopError(.portBecameInvalid))
        case .refused(.descriptorsLost): close(RunLoopError(.transportError, errno: EMFILE))
        case .message, .refused: close(RunLoopError(.transportError, errno: EBADMSG))
        case .failed(let errno): close(RunLoopError(.transportError, errno: errno))
        }
        return .something
    }

    /// Closes the connection, ends all requests with `error`, and notifies the holder, the first time only.
    func close(_ error: RunLoopError) {
        let (waiters, onClose) = state.withLock { state in
            let former = (state.waiters.values.map { $0 }, state.onClose.take())
            state = State()
            state.isOpen = false
            return former
        }
        socket.hangUp()
        for waiter in waiters { waiter.finish(.failure(error)) }
        onClose?()
    }
}
