import CRunLoopPorts
import Glibc
import Locking
import RunLoopKit

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
    /// The process that listened, or made the other end: the one that replies.
    let peer: run_loop_peer
    private let state = ForkSafeMutex(State())
    private let space = ForkSafeMutex(ReceiveSpace())

    private struct State: Sendable {
        var isOpen = true
        var lastNumber: UInt32 = 0
        var waiters: [UInt32: any Waiter] = [:]
        var onClose: (@Sendable () -> Void)?
    }

    init(_ socket: MessageSocket) {
        self.socket = socket
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
            try socket.send(message, kind: kind, number: number, timeout: timeout)
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
        // The peer has closed without reading all messages; what it sent is still there, followed by the end of the stream.
        case .nothing: return .nothing
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
