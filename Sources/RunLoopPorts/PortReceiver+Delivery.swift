import CRunLoopPorts
import Glibc
import Locking
import RunLoopKit

// How a port delivers its messages to the handler: one at a time.

extension PortReceiver {
    /// Delivers one message of a connection to the handler. Drops the connection if it sent anything else.
    func deliver(from connection: Connection) -> DescriptorSource.Finding {
        guard let handler = begin(connection) else { return .nothing }
        defer { end() }
        switch space.withLock({ $0.receive(from: connection.socket, sentBy: connection.peer) }) {
        case .message(let storage) where storage.header.kind != .reply:
            callOut(handler, message: ReceivedMessage(storage, from: connection.socket))
            return .perhapsMore
        case .message: drop(connection, .notAMessage)
        case .closed: forget(connection)
        case .refused(let reason): drop(connection, reason)
        case .nothing: return .nothing
        // Reset: the peer has closed without reading our replies. Its messages are still in the queue, followed by the end of the
        // stream.
        case .failed(ECONNRESET): break
        case .failed: drop(connection, .transportError)
        }
        return .something
    }

    /// Ends a connection, and tells the holder the reason.
    func drop(_ connection: Connection, _ reason: LocalPort.DropReason) {
        forget(connection)
        connection.socket.hangUp()
        options?.onDrop?(PortPeer(connection.peer), reason)
    }

    /// The handler, if the connection may deliver now. If the handler is busy, on another thread or further up the stack, the
    /// connection keeps its messages until that call is over (R23). A port that another thread has just closed delivers nothing.
    private func begin(_ connection: Connection) -> LocalPort.Boxed? {
        state.withLock { state in
            guard let handler = state.callbacks?.handler else { return nil }
            guard state.isDelivering else {
                state.isDelivering = true
                return handler
            }
            guard let source = state.watched[connection.socket.descriptor]?.source else { return nil }
            state.passedOver.append(source.descriptor)
            for presence in state.presences { presence.loop.remove(source, from: presence.mode) }
            return nil
        }
    }

    /// Watches the connections again that had a message meanwhile. Drops those that a mode does not take back.
    private func end() {
        let failed: [Watched] = state.withLock { state in
            state.isDelivering = false
            guard !state.passedOver.isEmpty else { return [] }
            let waiting = state.passedOver.take().compactMap { state.watched[$0] }
            return waiting.filter { watched in !state.presences.allSatisfy { Self.add(watched.source, to: $0) } }
        }
        for watched in failed { drop(watched.connection, .outOfDescriptors) }
    }
}
