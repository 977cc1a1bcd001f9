import CMonitorShims
import Glibc
import RunLoopKit
import StallReports

/// Answers health probes on a port, on its own thread. Probes are few and short: a connection that lasts longer than two seconds
/// is closed, and the oldest one if there are more than 16.
final class HealthEndpoint: Sendable {
    /// The port on which it listens.
    let port: Int
    private let listener: ListeningSocket
    private let thread: MonitorThread

    /// Opens the port.
    ///
    /// - Parameters:
    ///   - patience: How long a connection is kept.
    ///   - answer: Called on the endpoint's thread for each probe. It must not block for long.
    /// - Throws: `healthEndpointUnavailable`. Nothing is left behind then.
    init(
        _ options: StallMonitor.Configuration.HealthOptions,
        patience: Duration = .seconds(2),
        _ answer: @escaping @Sendable () -> HealthAnswer
    ) throws(StallMonitorError) {
        let (descriptor, port) = try Self.listen(options)
        // A fork's child does not have this thread, and would keep the port open forever.
        _ = monitor_close_in_child(descriptor)
        let listener = ListeningSocket(descriptor)
        (self.listener, self.port) = (listener, port)
        do throws(StallMonitorError) {
            thread = try MonitorThread(name: "stall-health", orElse: .healthEndpointUnavailable) {
                var service = HealthService(listener: listener, patience: patience, answer: answer)
                service.run()
            }
        } catch {
            listener.close()
            throw error
        }
    }

    /// Closes the port and ends the thread. If the thread does not end in time, it continues. Does nothing in a fork's child, which has
    /// neither.
    func end(within patience: Duration) {
        var patience = patience
        // Wakes the thread that waits on it.
        if listener.isOurs { shutdown(listener.descriptor, Int32(SHUT_RDWR)) }
        if thread.join(within: &patience) { listener.close() }
    }

    private static func listen(
        _ options: StallMonitor.Configuration.HealthOptions
    ) throws(StallMonitorError) -> (Int32, Int) {
        var hints = unsafe addrinfo()
        // Name services are not used, because they can take minutes.
        unsafe hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE
        unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        guard unsafe getaddrinfo(options.address, "\(options.port)", &hints, &found) == 0, let place = unsafe found
        else {
            throw StallMonitorError(
                .healthEndpointUnavailable,
                "health.address is no numeric address; give 127.0.0.1, 0.0.0.0 or ::."
            )
        }
        defer { unsafe freeaddrinfo(place) }
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let socket = unsafe Glibc.socket(place.pointee.ai_family, type, 0)
        var yes: Int32 = 1
        let size = socklen_t(MemoryLayout<Int32>.size)
        guard socket >= 0, unsafe setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, size) == 0,
            unsafe bind(socket, place.pointee.ai_addr, place.pointee.ai_addrlen) == 0,
            Glibc.listen(socket, SOMAXCONN) == 0, let port = Self.port(of: socket)
        else {
            let number = errno
            if socket >= 0 { Glibc.close(socket) }
            throw StallMonitorError(
                .healthEndpointUnavailable,
                errno: number,
                "Port \(options.port) of \(options.address) cannot be opened; choose another health.port."
            )
        }
        return (socket, port)
    }

    private static func port(of socket: Int32) -> Int? {
        var name = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let isKnown = unsafe withUnsafeMutablePointer(to: &name) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe getsockname(socket, $0, &length) == 0
            }
        }
        guard isKnown else { return nil }
        // The port has the same offset in both families' addresses.
        let port = unsafe withUnsafePointer(to: &name) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { unsafe $0.pointee.sin_port }
        }
        return Int(UInt16(bigEndian: port))
    }
}

/// The socket on which the endpoint listens. The host may have closed it, and its number may be another file by now: that is left
/// alone.
private struct ListeningSocket: Sendable {
    let descriptor: Int32
    private let identity: FileIdentity?

    init(_ descriptor: Int32) { (self.descriptor, identity) = (descriptor, FileIdentity(descriptor: descriptor)) }

    var isOurs: Bool { identity != nil && FileIdentity(descriptor: descriptor) == identity }

    func close() {
        monitor_forget_in_child(descriptor)
        if isOurs { Glibc.close(descriptor) }
    }
}

/// The work of the endpoint's thread.
private struct HealthService {
    let listener: ListeningSocket
    let patience: Duration
    let answer: @Sendable () -> HealthAnswer
    /// The oldest first.
    private var connections: [Connection] = []
    private var hasEnded = false
    private static let mostConnections = 16

    init(listener: ListeningSocket, patience: Duration, answer: @escaping @Sendable () -> HealthAnswer) {
        (self.listener, self.patience, self.answer) = (listener, patience, answer)
    }

    mutating func run() {
        while !hasEnded {
            waitForEvents()
            for index in connections.indices { connections[index].goOn(answer) }
            acceptNew()
            let now = MonotonicInstant.now
            for connection in connections where connection.isOver(at: now) { close(connection.descriptor) }
            connections.removeAll { $0.isOver(at: now) }
        }
        for connection in connections { close(connection.descriptor) }
    }

    /// Waits until a client connects or sends, a connection has timed out, or the listener is shut down.
    private mutating func waitForEvents() {
        var polled = [pollfd(fd: listener.descriptor, events: Int16(POLLIN), revents: 0)]
        polled += connections.map { pollfd(fd: $0.descriptor, events: $0.awaited, revents: 0) }
        var timeout: Int32 = -1
        if let next = connections.first?.deadline {
            timeout = Int32(clamping: max(0, (next - .now).nanoseconds / 1_000_000 + 1))
        }
        // Not by `poll`: StallMonitorLoops would watch this thread as one of the server's loops.
        _ = unsafe monitor_poll(&polled, nfds_t(polled.count), timeout)
        if polled[0].revents & Int16(POLLHUP | POLLNVAL) != 0 { hasEnded = true }
    }

    /// At most as many as are kept: what these have sent is read before they are replaced.
    private mutating func acceptNew() {
        guard listener.isOurs else { return hasEnded = true }
        for _ in 0..<Self.mostConnections {
            let descriptor = monitor_accept(listener.descriptor)
            guard descriptor >= 0 else {
                switch errno {
                case EAGAIN: return
                // The socket no longer listens, or the host has closed it just now.
                case EINVAL, EBADF, ENOTSOCK, EOPNOTSUPP: hasEnded = true
                // The error belongs to that connection alone (accept(2)).
                case ECONNABORTED, EHOSTDOWN, EHOSTUNREACH, EINTR, ENETDOWN, ENETUNREACH, ENONET, ENOPROTOOPT, EPROTO:
                    continue
                // Without descriptors or memory, or where a sandbox refuses the call, accept would keep failing at once.
                default: usleep(100_000)
                }
                return
            }
            // A probe sends its request at once, and is answered before it is the oldest: clients that send nothing make none wait.
            if connections.count >= Self.mostConnections { close(connections.removeFirst().descriptor) }
            var connection = Connection(descriptor: descriptor, deadline: .now + patience)
            connection.goOn(answer)
            connections.append(connection)
        }
    }
}

/// One probe: its request is read, its response written, and then the client is expected to close.
private struct Connection {
    private enum Step {
        case receiving([UInt8])
        case sending(ArraySlice<UInt8>)
        /// Reads the rest: closing a connection with unread data would reset it, and the response would be lost.
        case draining
        case over
    }

    let descriptor: Int32
    let deadline: MonotonicInstant
    private var step = Step.receiving([])

    init(descriptor: Int32, deadline: MonotonicInstant) { (self.descriptor, self.deadline) = (descriptor, deadline) }

    func isOver(at now: MonotonicInstant) -> Bool {
        if case .over = step { return true }
        return now >= deadline
    }

    /// The events for poll(2).
    var awaited: Int16 {
        if case .sending = step { return Int16(POLLOUT) }
        return Int16(POLLIN)
    }

    /// Reads or writes what is possible without waiting.
    mutating func goOn(_ answer: () -> HealthAnswer) {
        if case .receiving(let request) = step, let part = receive() {
            step = part.isEmpty ? .over : .receiving(request + part)
            if let response = HealthRequest(request + part).response(answer), !part.isEmpty {
                step = .sending(response[...])
            }
        }
        if case .sending(let response) = step { send(response) }
        // Anything else from the client is ignored.
        if case .draining = step, receive()?.isEmpty == true { step = .over }
    }

    /// Empty if the other end has closed or the connection has failed. Nil if nothing has arrived yet.
    private func receive() -> [UInt8]? {
        var part = [UInt8](repeating: 0, count: HealthRequest.limit)
        let count = unsafe recv(descriptor, &part, part.count, Int32(MSG_DONTWAIT))
        if count < 0, errno == EAGAIN || errno == EINTR { return nil }
        return Array(part.prefix(max(0, count)))
    }

    private mutating func send(_ response: ArraySlice<UInt8>) {
        let flags = Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)
        let sent = unsafe response.withUnsafeBytes { bytes in
            unsafe Glibc.send(descriptor, bytes.baseAddress, bytes.count, flags)
        }
        if sent < 0 {
            if errno != EAGAIN && errno != EINTR { step = .over }
            return
        }
        step = .sending(response.dropFirst(sent))
        guard sent == response.count else { return }
        shutdown(descriptor, Int32(SHUT_WR))
        step = .draining
    }
}
