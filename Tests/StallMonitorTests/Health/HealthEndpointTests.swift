import Dispatch
import Glibc
import RunLoopKit
import TestSupport
import Testing

@testable import StallMonitor

@Suite("Health probes on a port", .timeLimit(.minutes(10)))
struct HealthEndpointTests {
    private let directory = TemporaryDirectory(inMemory: true)

    /// Stands for a request that is longer than any probe's.
    private static let endless = "endless"

    private func monitor(port: Int = 0, watching loops: [StallingLoop] = [], address: String = "127.0.0.1")
        -> StallMonitor
    {
        let configuration = StallMonitor.Configuration(
            directory: directory.path,
            health: .init(port: port, address: address, failsAfter: .seconds(1))
        )
        return StallMonitor.start(configuration, watching: loops.map(\.loop))
    }

    /// The answer to a request, repeated until it is due: a probe that a busy machine delays by two seconds is closed without a
    /// word. The time limit only ends a hang.
    private func answer(
        _ request: String = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        on port: Int,
        until isDue: (String) -> Bool = { !$0.isEmpty }
    ) throws -> String {
        var answer = ""
        let deadline = MonotonicInstant.now + .seconds(60)
        while !isDue(answer), MonotonicInstant.now < deadline { answer = try Probe(port).answer(request) }
        return answer
    }

    @Test("without a thread for the port, it is the port that is missing, and not the monitor")
    func withoutThread() async {
        // In a process of its own, which has no memory for a stack meanwhile.
        await #expect(processExitsWith: .success) {
            var before = rlimit()
            unsafe getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &before)
            var none = rlimit(rlim_cur: 1, rlim_max: before.rlim_max)
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &none)
            let opened = Result { () throws(StallMonitorError) in
                try HealthEndpoint(.init(port: 0)) {
                    HealthAnswer(StallMonitor.Health(StallMonitorError(.stopped)), failsAfter: .seconds(1))
                }
            }
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &before)
            let error = #expect(throws: StallMonitorError.self) { try opened.get() }
            #expect(error?.code == .healthEndpointUnavailable && error?.errno == EAGAIN)
            #expect(error?.message.contains("Raise the limit of threads") == true)
        }
    }

    @Test(
        "a stalled loop makes the answer a failure after a while, until the loop turns again"
    )
    func stall() throws {
        let worker = StallingLoop()
        let monitor = monitor(watching: [worker])
        defer {
            monitor.stop()
            worker.end()
        }
        let port = try #require(monitor.healthPort)
        let healthy = try answer(on: port)
        #expect(healthy.hasPrefix("HTTP/1.1 200 OK\r\n") && healthy.contains(#""state":"healthy""#), "\(healthy)")
        let end = DispatchSemaphore(value: 0)
        worker.loop.perform { end.wait() }
        // However late the machine is, the answer comes.
        let stalled = try answer(on: port) { $0.hasPrefix("HTTP/1.1 503 ") }
        #expect(stalled.contains(#""state":"stalled""#) && stalled.contains(#""type":"run_loop""#), "\(stalled)")
        // Also if the machine stood still meanwhile.
        let head = try answer("HEAD /health?x=1 HTTP/1.0\n\n", on: port)
        #expect(head.hasPrefix("HTTP/1.1 503 ") && head.hasSuffix("\r\n\r\n"), "\(head)")
        end.signal()
        let last = try answer(on: port) { $0.hasPrefix("HTTP/1.1 200 ") }
        #expect(last.hasPrefix("HTTP/1.1 200 "), "\(last)")
    }

    @Test(
        "a request that is no probe is refused, and the next one is answered",
        arguments: [
            ("POST /health HTTP/1.1\r\n\r\n", "405"), ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /healthy HTTP/1.1\r\n\r\n", "404"), ("HEAD / HTTP/1.1\r\n\r\n", "404"),
            ("nonsense\r\n\r\n", "400"), ("GET /health SMTP\r\n\r\n", "400"), ("\r\n\r\n", "400"),
            (Self.endless, "400"),
        ]
    )
    func refused(request: String, status: String) throws {
        let monitor = monitor()
        defer { monitor.stop() }
        let port = try #require(monitor.healthPort)
        let refusal = try answer(request == Self.endless ? String(repeating: "a", count: 10_000) : request, on: port)
        #expect(refusal.hasPrefix("HTTP/1.1 \(status) "), "\(refusal)")
        // A client would take a body after HEAD for the next response (RFC 9110, section 9.3.2).
        if request.hasPrefix("HEAD") { #expect(refusal.hasSuffix("\r\n\r\n"), "\(refusal)") }
        #expect(try answer(on: port).hasPrefix("HTTP/1.1 200 "))
    }

    @Test("a probe does not wait for clients that send nothing, however many there are and however long they stay")
    func crowd() throws {
        let endpoint = try HealthEndpoint(.init(port: 0), patience: .seconds(3600)) {
            HealthAnswer(.init(stalls: [], problems: []), failsAfter: .seconds(10))
        }
        defer { endpoint.end(within: .seconds(60)) }
        let silent = try (0..<40).map { _ in try Probe(endpoint.port) }
        let answer = try Probe(endpoint.port).answer("GET /health HTTP/1.1\r\n\r\n")
        #expect(answer.hasPrefix("HTTP/1.1 200 "), "\(answer)")
        withExtendedLifetime(silent) {}
    }

    @Test("clients that send nothing are closed, and a request may arrive in pieces")
    func silent() throws {
        let monitor = monitor()
        defer { monitor.stop() }
        let port = try #require(monitor.healthPort)
        let silent = try (0..<40).map { _ in try Probe(port) }
        #expect(try answer(on: port).hasPrefix("HTTP/1.1 200 "))
        for probe in silent { #expect(probe.rest().isEmpty, "closed without a word") }
        // A probe that a busy machine delays by two seconds is closed: the next one is not.
        var whole = ""
        let deadline = MonotonicInstant.now + .seconds(60)
        while whole.isEmpty, MonotonicInstant.now < deadline {
            let slow = try Probe(port)
            for piece in ["GET /hea", "lth HTTP/1.1\r", "\n\r"] {
                slow.send(piece)
                sched_yield()
            }
            whole = try slow.answer("\n")
        }
        #expect(whole.hasPrefix("HTTP/1.1 200 "))
    }

    @Test("if the port cannot be opened, that is reported, and the monitor watches anyway")
    func taken() throws {
        let first = monitor()
        defer { first.stop() }
        let port = try #require(first.healthPort)
        for (port, address) in [(port, "127.0.0.1"), (0, "no.such.name"), (0, "203.0.113.7")] {
            let second = monitor(port: port, address: address)
            #expect(second.healthPort == nil && second.isRunning)
            // The reporter reports it, a moment later.
            waitUntil { second.health.problems.contains { $0.code == .healthEndpointUnavailable } }
            second.stop()
        }
    }

    @Test("a monitor that is paused, stopped or switched off is not healthy; its probes succeed")
    func notWatching() throws {
        let worker = StallingLoop()
        defer { worker.end() }
        let paused = monitor(watching: [worker])
        func isPaused() -> Bool { paused.health.problems.contains { $0.code == .paused } }
        paused.pause()
        // The watchdog pauses a moment later.
        waitUntil(isPaused)
        #expect(paused.health.state == .degraded)
        let probed = try answer(on: try #require(paused.healthPort))
        #expect(probed.hasPrefix("HTTP/1.1 200 ") && probed.contains("1 of 1 are paused"), "\(probed)")
        paused.resume()
        waitUntil { !isPaused() }
        paused.stop()
        #expect(paused.health.problems.map(\.code) == [.stopped])

        let off = StallMonitor.start(.init(health: .init(port: 0), enabled: false))
        #expect(!off.isRunning && off.health.problems.map(\.code) == [.switchedOff])
        let answered = try answer(on: try #require(off.healthPort))
        #expect(answered.hasPrefix("HTTP/1.1 200 ") && answered.contains(#""state":"degraded""#), "\(answered)")
        off.stop()
        #expect(off.healthPort == nil)
    }

    /// At an address that only this test uses: at another one, any process of this machine may get the port meanwhile.
    @Test("a stopped monitor has closed its port, and another can open it")
    func stopped() throws {
        let address = "127.0.83.\(1 + getpid() % 250)"
        let first = monitor(address: address)
        let port = try #require(first.healthPort)
        first.stop()
        #expect(first.healthPort == nil)
        #expect(throws: Probe.Refused.self) { try Probe(port, address) }
        let second = monitor(port: port, address: address)
        #expect(second.healthPort == port)
        second.stop()
    }

    @Test("if the host has closed the port's socket, and its number is the host's own listener, that is left alone")
    func reusedNumber() throws {
        let monitor = monitor()
        let port = try #require(monitor.healthPort)
        let number = try #require((3..<4096).first { localPort($0) == port })
        // It gets a port of its own.
        let own = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        try #require(listen(own, 4) == 0)
        let client = try Probe(try #require(localPort(own)))
        try #require(dup2(own, number) == number)
        // Wakes the endpoint's thread, which waits for the former socket.
        _ = try? Probe(port)
        monitor.stop()
        let accepted = accept(own, nil, nil)
        #expect(accepted >= 0, "\(errno)")
        withExtendedLifetime(client) {}
        for descriptor in [accepted, own, number] { close(descriptor) }
    }
}

/// The port to which a socket is bound. Nil for anything else.
private func localPort(_ descriptor: Int32) -> Int? {
    var name = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isKnown = unsafe withUnsafeMutablePointer(to: &name) { pointer in
        unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            unsafe getsockname(descriptor, $0, &length) == 0
        }
    }
    return isKnown && name.sin_family == sa_family_t(AF_INET) ? Int(UInt16(bigEndian: name.sin_port)) : nil
}

/// A client's connection.
private final class Probe {
    struct Refused: Error {}

    private let descriptor: Int32

    init(_ port: Int, _ address: String = "127.0.0.1") throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var place = sockaddr_in()
        place.sin_family = sa_family_t(AF_INET)
        place.sin_port = UInt16(port).bigEndian
        place.sin_addr.s_addr = unsafe inet_addr(address)
        let descriptor = descriptor
        let isOpen = unsafe withUnsafePointer(to: &place) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        guard isOpen else { throw Refused() }
    }

    deinit { close(descriptor) }

    func send(_ text: String) { _ = unsafe Glibc.send(descriptor, text, text.utf8.count, Int32(MSG_NOSIGNAL)) }

    /// What arrives until the other end closes.
    func rest() -> String {
        var (all, part): ([UInt8], [UInt8]) = ([], [UInt8](repeating: 0, count: 4096))
        while true {
            let count = unsafe recv(descriptor, &part, part.count, 0)
            guard count > 0 else { return String(decoding: all, as: UTF8.self) }
            all += part[..<count]
        }
    }

    func answer(_ request: String) throws -> String {
        send(request)
        return rest()
    }
}
