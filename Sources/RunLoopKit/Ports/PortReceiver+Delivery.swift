internal import CRunLoopShims
internal import Glibc
internal import Synchronization

extension PortReceiver {
    /// Hands one message of a connection to the handler, or drops the connection if it has sent something else.
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
        // Reset: the peer went without reading our replies. What it sent is still there, and after it the end.
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

    /// Accepts one connection; the kernel tells again if there are more.
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
