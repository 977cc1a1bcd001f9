import CMonitorShims
import Glibc
import RunLoopKit
import StallReports

/// Answers health probes on a port, on a thread of its own. Probes are few and short: what takes longer than two seconds, or comes while 16 others
/// wait, is closed or waits its turn.
final class HealthEndpoint: Sendable {
    /// Where it listens.
    let port: Int
    private let listener: Int32
    private let thread: MonitorThread

    /// For how long a connection is kept.
    fileprivate static let patience = Duration.seconds(2)
    fileprivate static let mostConnections = 16

    /// Opens the port.
    ///
    /// - Parameter answer: called on the endpoint's thread for each probe; it must neither wait nor lock for long.
    /// - Throws: `healthEndpointUnavailable`, or `threadNotStarted`. Nothing is left behind then.
    init(
        _ options: StallMonitor.Configuration.HealthOptions,
        _ answer: @escaping @Sendable () -> HealthAnswer
    ) throws(StallMonitorError) {
        let (listener, port) = try Self.listen(options)
        // A child without this thread would keep the port for ever.
        _ = monitor_close_in_child(listener)
        (self.listener, self.port) = (listener, port)
        do throws(StallMonitorError) {
            thread = try MonitorThread(name: "stall-health") {
                var service = HealthService(listener: listener, answer: answer)
                service.run()
            }
        } catch {
            Self.close(listener)
            throw error
        }
    }

    /// Closes the port and ends the thread. What does not end by the deadline goes on. Not in a fork's child, which has neither.
    func end(by deadline: MonotonicInstant) {
        // The thread that waits on it wakes up.
        shutdown(listener, Int32(SHUT_RDWR))
        if thread.join(by: deadline) { Self.close(listener) }
    }

    private static func close(_ listener: Int32) {
        monitor_forget_in_child(listener)
        Glibc.close(listener)
    }

    private static func listen(
        _ options: StallMonitor.Configuration.HealthOptions
    ) throws(StallMonitorError) -> (Int32, Int) {
        var hints = unsafe addrinfo()
        // No name service is asked: that can take minutes.
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
            Glibc.listen(socket, 16) == 0, let port = Self.port(of: socket)
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
        // The port stands at the same place in both families' addresses.
        let port = unsafe withUnsafePointer(to: &name) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { unsafe $0.pointee.sin_port }
        }
        return Int(UInt16(bigEndian: port))
    }
}

/// What the endpoint's thread does.
private struct HealthService {
    let listener: Int32
    let answer: @Sendable () -> HealthAnswer
    private var connections: [Connection] = []
    private var hasEnded = false

    init(listener: Int32, answer: @escaping @Sendable () -> HealthAnswer) {
        (self.listener, self.answer) = (listener, answer)
    }

    mutating func run() {
        while !hasEnded {
            waitForEvents()
            acceptAll()
            for index in connections.indices { connections[index].goOn(answer) }
            let now = MonotonicInstant.now
            for connection in connections where connection.isOver(at: now) { close(connection.descriptor) }
            connections.removeAll { $0.isOver(at: now) }
        }
        for connection in connections { close(connection.descriptor) }
    }

    /// Until somebody asks, a connection's time is over, or the listener is shut down.
    private func waitForEvents() {
        let isFull = connections.count >= HealthEndpoint.mostConnections
        var polled = [pollfd(fd: listener, events: isFull ? 0 : Int16(POLLIN), revents: 0)]
        polled += connections.map { pollfd(fd: $0.descriptor, events: $0.awaited, revents: 0) }
        let next = connections.map(\.deadline).min().map { max(0, ($0 - .now).nanoseconds / 1_000_000 + 1) }
        _ = unsafe poll(&polled, nfds_t(polled.count), next.map { Int32(clamping: $0) } ?? -1)
    }

    private mutating func acceptAll() {
        while connections.count < HealthEndpoint.mostConnections {
            let descriptor = monitor_accept(listener)
            guard descriptor >= 0 else {
                switch errno {
                case EAGAIN: return
                // The socket does not listen any more, or the host has closed it and the number is another file.
                case EINVAL, EBADF, ENOTSOCK, EOPNOTSUPP: hasEnded = true
                // Without descriptors or memory the next look would come at once, and so would the one after it.
                case EMFILE, ENFILE, ENOMEM, ENOBUFS: usleep(100_000)
                // Of that connection alone (accept(2)).
                default: continue
                }
                return
            }
            connections.append(Connection(descriptor: descriptor, deadline: .now + HealthEndpoint.patience))
        }
    }
}

/// One probe: its request comes in, its response goes out, and then it is the client's turn to close.
private struct Connection {
    private enum Step {
        case receiving([UInt8])
        case sending(ArraySlice<UInt8>)
        /// Closed at once, a connection with something unread in it would be reset, and the response lost.
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

    /// For poll(2).
    var awaited: Int16 {
        if case .sending = step { return Int16(POLLOUT) }
        return Int16(POLLIN)
    }

    /// As far as it goes without a wait.
    mutating func goOn(_ answer: () -> HealthAnswer) {
        if case .receiving(let request) = step, let part = receive() {
            step = part.isEmpty ? .over : .receiving(request + part)
            if let response = HealthRequest(request + part).response(answer), !part.isEmpty {
                step = .sending(response[...])
            }
        }
        if case .sending(let response) = step { send(response) }
        // Whatever else comes is of no interest.
        if case .draining = step, receive()?.isEmpty == true { step = .over }
    }

    /// Nothing where the other end has closed, or the connection has failed. Nil where nothing has come yet.
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
