import CRunLoopShims
import Glibc
import StallReports
import Testing

@testable import StallDiagnosis

@Suite("Clients that wait for a loop", .serialized, .timeLimit(.minutes(10)))
struct WaitingClientsTests {
    @Test("The kernel's list of an epoll set is read; lines that are no entry are skipped")
    func entries() {
        let text = """
            pos:\t0
            flags:\t02
            tfd:       11 events:       19 data:       7f0000000b  pos:0 ino:3a5 sdev:8
            tfd:        7 events: 2019 data: 7  pos:0 ino:ff sdev:e
            tfd:       -1 events: 19 data: 0  pos:0 ino:1 sdev:8
            tfd:       x events: 19 data: 0  pos:0 ino:1 sdev:8
            tfd:       12 events: 19 data: 0  pos:0 ino:xyz sdev:8
            tfd:
            tfd:       13 events: 19
            """
        #expect(
            PollEntry.all(in: text) == [.init(descriptor: 11, inode: 0x3a5), .init(descriptor: 7, inode: 0xff)]
        )
        #expect(PollEntry.all(in: "").isEmpty)
    }

    @Test("Listening ports are read, up to the first connection")
    func ports() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        let text =
            head + """
                   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
                   1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 x
                   2: 0100007F:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
                   3: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
                """
        #expect(ListeningPorts.read(text) == [8080, 80])
        #expect(ListeningPorts.read(head).isEmpty && ListeningPorts.read("").isEmpty)
        #expect(ListeningPorts.read(head + "0: 0100007F:FFFFF x 0A").isEmpty)
    }

    @Test(
        "Unread and unaccepted connections are waiting clients; the server's own requests to others are not",
        arguments: [AF_INET, AF_UNIX]
    )
    func counts(_ family: Int32) throws {
        let server = try Server(family)
        for number in 0..<5 {
            let (client, connection) = try server.connect()
            if number < 3 { #expect(unsafe write(client, "1234567", 7) == 7) }
            _ = connection
        }
        // A connection in which the process is the client: the answer has arrived and is unread.
        let (own, other) = try server.connect()
        server.watch(own)
        #expect(unsafe write(other, "answer", 6) == 6)
        for _ in 0..<4 { _ = try server.dial() }
        for descriptor in [server.set, Int32(-1)] {
            let victims = WaitingClients(process: .own, awaited: .set(descriptor)).count()
            guard descriptor >= 0 else {
                #expect(victims == nil)
                continue
            }
            let counted = try #require(victims)
            #expect(counted.unread == 3 && counted.unreadBytes == 21 && counted.sockets == 7)
            // The number of connections waiting at a local listener is not reported: at least one.
            #expect(counted.unaccepted == (family == AF_INET ? 4 : 1))
            #expect(counted.clients == counted.unread + counted.unaccepted)
        }
    }

    @Test("In a list the sockets count, and those in an epoll set in the list; each once")
    func list() throws {
        let server = try Server(AF_INET)
        let (client, connection) = try server.connect()
        #expect(unsafe write(client, "1234567", 7) == 7)
        func count(_ list: [Int32]) -> StallReport.Victims? {
            WaitingClients(process: .own, awaited: .list(list)).count()
        }
        #expect(count([connection])?.unread == 1 && count([connection, connection])?.sockets == 1)
        #expect(count([server.set])?.unread == 1)
        #expect(count([]) == nil && count([-1, .max]) == nil)
    }

    @Test(
        "Of an epoll set with more descriptors than are read, the first count",
        .enabled(if: sysconf(Int32(_SC_OPEN_MAX)) >= 16_000)
    )
    func largeSet() throws {
        let server = try Server(AF_INET)
        let (client, connection) = try server.connect()
        #expect(unsafe write(client, "1234567", 7) == 7)
        let copies = (0..<14_000).map { _ in dup(connection) }
        for copy in copies where copy >= 0 { server.watch(copy) }
        let victims = WaitingClients(process: .own, awaited: .set(server.set)).count()
        for copy in copies where copy >= 0 { close(copy) }
        #expect(victims != nil)
    }

    @Test("An epoll set without clients' sockets, or a descriptor that is no epoll set, gives no victims")
    func nothing() {
        let set = epoll_create1(Int32(EPOLL_CLOEXEC))
        #expect(WaitingClients(process: .own, awaited: .set(set)).count() == nil)
        #expect(WaitingClients(process: .own, awaited: .set(0)).count() == nil)
        close(set)
        #expect(WaitingClients(process: .own, awaited: .set(set)).count() == nil)
        #expect(WaitingClients(process: ObservedProcess(otherID: 2), awaited: .set(3)).count() == nil)
    }
}

/// A server's sockets in an epoll set, and its clients.
private final class Server {
    let set = epoll_create1(Int32(EPOLL_CLOEXEC))
    private let family: Int32
    private let listener: Int32
    private var open: [Int32] = []
    private let path = "/tmp/stall-clients-\(ULID.make())"

    init(_ family: Int32) throws {
        self.family = family
        listener = socket(family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        #expect(unsafe withAddress { unsafe bind(listener, $0, $1) } == 0)
        #expect(listen(listener, 64) == 0)
        watch(listener)
    }

    deinit {
        for descriptor in open + [listener, set] { close(descriptor) }
        unsafe unlink(path)
    }

    func watch(_ descriptor: Int32) {
        var event = unsafe epoll_event()
        unsafe event.events = UInt32(EPOLLIN.rawValue)
        #expect(unsafe epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0)
    }

    /// Connects a client that is not accepted.
    func dial() throws -> Int32 {
        let client = socket(family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        open.append(client)
        try #require(unsafe withAddress(ofListener: true) { unsafe Glibc.connect(client, $0, $1) } == 0)
        return client
    }

    /// Connects a client that is accepted; the connection is in the set.
    func connect() throws -> (client: Int32, connection: Int32) {
        let client = try dial()
        let connection = accept(listener, nil, nil)
        open.append(connection)
        watch(connection)
        return (client, connection)
    }

    private func withAddress(ofListener: Bool = false, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return unsafe withUnsafeMutablePointer(to: &storage) { storage in
            unsafe storage.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                if ofListener {
                    unsafe getsockname(listener, address, &length)
                } else if family == AF_INET {
                    unsafe storage.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                        unsafe $0.pointee.sin_family = sa_family_t(AF_INET)
                        unsafe $0.pointee.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
                    }
                    length = socklen_t(MemoryLayout<sockaddr_in>.size)
                } else {
                    unsafe storage.withMemoryRebound(to: sockaddr_un.self, capacity: 1) { local in
                        unsafe local.pointee.sun_family = sa_family_t(AF_UNIX)
                        unsafe withUnsafeMutableBytes(of: &local.pointee.sun_path) {
                            unsafe $0.copyBytes(from: path.utf8)
                        }
                    }
                    length = socklen_t(MemoryLayout<sockaddr_un>.size)
                }
                return unsafe body(address, length)
            }
        }
    }
}
