import CRunLoopPorts
import Glibc
import Locking
import RunLoopKit

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
