import CRunLoopPorts
import Glibc
import Locking
import RunLoopKit

/// A claimed name, and the socket that listens under it. The name is released when the listener is.
final class Listener: Sendable {
    enum Arrival {
        case connection(MessageSocket)
        /// There was a connection, but no descriptor for it, so it was closed.
        case refused
        /// There may be a connection, but it can be neither accepted nor refused: no descriptor or memory is left, or a sandbox refuses the
        /// call. It waits, and the socket stays ready.
        case starved
        case nothing
    }

    let socket: MessageSocket
    private let claim: NameClaim
    /// A spare descriptor. It is closed for a moment when none is left, so that a connecting client is refused instead of
    /// waiting. -1 if it could not be reopened, because another thread has taken the descriptor.
    private let reserve: ForkSafeMutex<Int32>

    init(_ name: PortName, in directory: PortDirectory) throws(RunLoopError) {
        claim = try NameClaim(name, in: directory)
        let fd = run_loop_message_socket()
        if fd < 0 { throw RunLoopError.port(-fd) }
        socket = MessageSocket(owning: fd)
        let reserved = Self.makeReserve()
        reserve = ForkSafeMutex(reserved)
        if reserved < 0 { throw RunLoopError.port(errno) }
        try claim.bind(fd)
    }

    deinit {
        reserve.withLock { if $0 >= 0 { close($0) } }
        // Notifies clients that have connected but were not accepted, even if another process has a copy of the socket.
        socket.hangUp()
    }

    func accept(_ peer: inout run_loop_peer) -> Arrival {
        let fd = unsafe run_loop_message_accept(socket.descriptor, &peer)
        switch -fd {
        case ...0:
            reserve.withLock { if $0 < 0 { $0 = Self.makeReserve() } }
            return .connection(MessageSocket(owning: fd))
        case EMFILE, ENFILE: return refuse(&peer)
        case EAGAIN, ECONNABORTED: return .nothing
        default: return .starved
        }
    }

    private func refuse(_ peer: inout run_loop_peer) -> Arrival {
        reserve.withLock { reserve in
            if reserve >= 0 { close(reserve) }
            let fd = unsafe run_loop_message_accept(socket.descriptor, &peer)
            if fd >= 0 { close(fd) }
            reserve = Self.makeReserve()
            return fd >= 0 ? .refused : fd == -EAGAIN ? .nothing : .starved
        }
    }

    private static func makeReserve() -> Int32 { unsafe open("/dev/null", O_RDONLY | O_CLOEXEC) }
}

extension PortReceiver {
    /// Delivers one message of a connection to the handler. Drops the connection if it sent anything else.
    func deliver(from connection: Connection) -> DescriptorSource.Finding {
        guard begin(connection) else { return .nothing }
        defer { end() }
        switch space.withLock({ $0.receive(from: connection.socket, sentBy: connection.peer) }) {
        case .message(let storage) where storage.header.kind != .reply:
            callOut(handler, message: ReceivedMessage(storage, from: connection.socket))
            return .perhapsMore
        case .message: drop(connection, .notAMessage)
        case .closed: forget(connection)
        case .refused(let reason): drop(connection, reason)
        // Reset: the peer has closed without reading our replies. Its messages are still in the queue, followed by the end of the
        // stream.
        case .nothing: return .nothing
        case .failed(ECONNRESET): break
        case .failed: drop(connection, .transportError)
        }
        return .something
    }

    private func drop(_ connection: Connection, _ reason: LocalPort.DropReason) {
        forget(connection)
        connection.socket.hangUp()
        options.onDrop?(PortPeer(connection.peer), reason)
    }

    /// Accepts one connection; the kernel reports readiness again if there are more.
    func accept(from listener: Listener) {
        var peer = run_loop_peer()
        switch listener.accept(&peer) {
        case .connection(let socket):
            let connection = Connection(socket: socket, peer: peer)
            guard options.accepts(PortPeer(peer)) else { return drop(connection, .peerNotAllowed) }
            do { try insert(connection) } catch { drop(connection, .outOfDescriptors) }
        case .refused: options.onDrop?(PortPeer(peer), .outOfDescriptors)
        case .starved: pauseListening()
        case .nothing: break
        }
    }
}
