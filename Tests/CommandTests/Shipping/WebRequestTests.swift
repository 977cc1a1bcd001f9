import Foundation
import StallReports
import Testing
import WebRequests

@Suite("Requests to a receiver", .timeLimit(.minutes(10)))
struct WebRequestTests {
    private let fixture: ReportsFixture
    private var answers: String { fixture.root + "/receiver" }

    init() throws { fixture = try ReportsFixture() }

    private func ship(to url: String, environment: [String: String]) throws -> CommandRun {
        try CommandRun(
            arguments: ["ship", fixture.path, "--to", url, "--checkpoint", fixture.root + "/sent", "--once"],
            environment: environment
        )
    }

    @Test("Each of very many requests, one right after the other, is answered")
    func many() throws {
        let receiver = try OTLPReceiver(in: answers, plan: #"{"status": 400, "body": "no", "stays": true}"#)
        var request = WebRequest(receiver.url + "/v1/logs", limit: .whole(.seconds(60)))
        request.body = Array(repeating: UInt8(ascii: "x"), count: 2000)
        for _ in 0..<1000 {
            let (head, body) = try request.send(bytes: 100)
            #expect(head.status == 400 && head.fields["content-length"] == "2" && body == Array("no".utf8))
        }
    }

    @Test("Only the wanted part of an answer is received")
    func part() throws {
        let text = String(repeating: "long ", count: 100_000)
        let receiver = try OTLPReceiver(in: answers, plan: "{\"status\": 500, \"body\": \"\(text)\", \"stays\": true}")
        var request = WebRequest(receiver.url, limit: .whole(.seconds(60)))
        request.body = []
        let (head, body) = try request.send(bytes: 7)
        #expect(head.status == 500 && body == Array("long lo".utf8))
    }

    @Test("A server that does not answer, and an address without one, are told apart; neither shows the address's path")
    func unanswered() throws {
        let port = try SilentPort()
        for limit in [.silence(.seconds(1)), .whole(.milliseconds(100))] as [WebRequest.TimeLimit] {
            let failure = #expect(throws: WebRequest.Failure.self) {
                try WebRequest(port.url + "/secret", limit: limit).send(bytes: 1)
            }
            #expect(failure?.isTimeout == true && failure?.kind.contains("secret") == false)
        }
        port.end()
        let failure = #expect(throws: WebRequest.Failure.self) {
            try WebRequest(port.url + "/secret", limit: .whole(.seconds(60))).send(bytes: 1)
        }
        #expect(failure?.isTimeout == false && failure?.description.contains("\(port.number)") == true)
        #expect(failure.map { "\($0)".contains("secret") } == false)
        // The system's reason, in place of libcurl's, which repeats that there is no connection.
        #expect(failure?.description.hasSuffix(": Connection refused") == true, "\(failure?.description ?? "")")
    }

    @Test("A request ends when its answer is no longer awaited, as if its time were over")
    func notAwaited() throws {
        let port = try SilentPort()
        let failure = #expect(throws: WebRequest.Failure.self) {
            try WebRequest(port.url, limit: .whole(.seconds(600))).send(bytes: 1, while: { false })
        }
        #expect(failure?.isTimeout == true)
    }

    @Test("A task that is cancelled does not wait for the answer")
    func cancelled() async throws {
        let port = try SilentPort()
        let request = WebRequest(port.url, limit: .whole(.seconds(600)))
        let task = Task { try await request.answer(bytes: 1) }
        task.cancel()
        await #expect(throws: CancellationError.self) { _ = try await task.value }
        // The thread that still waits gets an error now.
        port.end()
    }

    @Test("By TLS, reports go only to a receiver with a trusted certificate")
    func certificate() throws {
        _ = try fixture.store.write(Sample.report(id: .make()))
        let (key, certificate) = (fixture.root + "/key.pem", fixture.root + "/certificate.pem")
        let made = try CommandRun(
            tool: "/usr/bin/openssl",
            [
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=receiver",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate,
            ]
        )
        try #require(made.status == 0, "\(made)")
        let both =
            try String(contentsOfFile: key, encoding: .utf8) + String(contentsOfFile: certificate, encoding: .utf8)
        try both.write(toFile: key, atomically: true, encoding: .utf8)
        let receiver = try OTLPReceiver(in: answers, certificate: key)
        let untrusted = try ship(to: receiver.url, environment: [:])
        #expect(untrusted.status == 1 && untrusted.errors.contains("certificate"), "\(untrusted.errors)")
        #expect(untrusted.errors.contains("$SSL_CERT_FILE names"), "\(untrusted.errors)")
        #expect(try receiver.accepted().isEmpty)
        // An empty variable is none.
        let variables = ["CURL_CA_BUNDLE": "", "SSL_CERT_FILE": certificate]
        let trusted = try ship(to: receiver.url, environment: variables)
        #expect(trusted.status == 0 && trusted.output.hasPrefix("sent 1 stall "), "\(trusted)")
    }

    @Test("A receiver that speaks no TLS is told from one that cannot be reached")
    func withoutTLS() throws {
        _ = try fixture.store.write(Sample.report(id: .make()))
        let receiver = try OTLPReceiver(in: answers)
        let run = try ship(to: receiver.url.replacing("http://", with: "https://"), environment: [:])
        #expect(run.status == 1 && run.errors.contains("no TLS is spoken at that address"), "\(run.errors)")
    }

    @Test("A proxy is used")
    func proxy() throws {
        _ = try fixture.store.write(Sample.report(id: .make()))
        let receiver = try OTLPReceiver(in: answers)
        let run = try ship(to: "http://stalls.invalid:4318", environment: ["http_proxy": receiver.url])
        #expect(run.status == 0, "\(run.errors)")
        #expect(try receiver.accepted().map(\.path) == ["http://stalls.invalid:4318/v1/logs"])
    }
}

/// A port that takes connections and never answers. At an address that only this process uses: at another one, any process of this
/// machine may get the port when this one is closed.
private final class SilentPort {
    let number: UInt16
    let url: String
    private var descriptor: Int32

    init() throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        let host = "127.0.84.\(1 + getpid() % 250)"
        address.sin_addr.s_addr = unsafe inet_addr(host)
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe bind(listener, $0, size) == 0 && listen(listener, 16) == 0
                    && getsockname(listener, $0, &size) == 0
            }
        }
        try #require(isBound)
        descriptor = listener
        number = UInt16(bigEndian: address.sin_port)
        url = "http://\(host):\(number)"
    }

    func end() {
        close(descriptor)
        descriptor = -1
    }

    deinit { if descriptor >= 0 { close(descriptor) } }
}
