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

/// Where the ports with names of this process are. A thread that connects by a name thus knows whose loop it will wait for, if the port is
/// in its own process.
enum NamedPlaces {
    /// What other ports find a port by.
    struct Address: Hashable, Sendable {
        let name: PortName
        let directory: PortDirectory
    }

    private static let places = ForkSafeMutex<[Address: PortPlace]>([:])

    static func note(_ place: PortPlace, at address: Address) { places.withLock { $0[address] = place } }

    /// Removes a port that has closed. Another one may have its name by now.
    static func forget(_ place: PortPlace) {
        places.withLock { places in
            guard let address = places.first(where: { $0.value === place })?.key else { return }
            places[address] = nil
        }
    }

    /// The receiver of a new connection.
    static func destination(_ address: Address, _ peer: run_loop_peer) -> PortDestination {
        let isHere = peer.pid == getpid()
        return PortDestination(
            isHere ? places.withLock { $0[address] } : nil,
            name: address.name.text,
            process: isHere ? 0 : peer.pid
        )
    }
}
