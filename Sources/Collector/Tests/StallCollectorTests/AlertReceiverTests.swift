import Foundation
import Glibc
import StallReports
import StallStore
import Testing
import WebRequests

@testable import StallCollector

@Suite("Alert receivers")
struct AlertReceiverTests {
    private static let alert = Alert(
        team: "default",
        rule: "new faults",
        subject: "s",
        text: "new in shop: “naïve()” <!channel>",
        beganAt: Timestamp(seconds: 1_780_000_000)
    )

    private struct Message: Decodable {
        var text: String
        var alerts: [Entry]
        struct Entry: Decodable { var state: String }
    }

    @Test("A webhook gets the message as JSON by POST, once")
    func webhook() async throws {
        let listener = try Listener()
        let address = "http://127.0.0.1:\(listener.port)/hooks/secret"
        let receiver = AlertReceiver(way: .webhook(try #require(URL(string: address))))
        async let requests = listener.answerOne()
        try await receiver.send(AlertMessage([Self.alert], "https://stalls.example.com"))
        let request = try #require(await requests)
        let parts = request.split(separator: "\r\n\r\n", maxSplits: 1)
        #expect(parts[0].hasPrefix("POST /hooks/secret HTTP/1.1"))
        #expect(parts[0].lowercased().contains("content-type: application/json"))
        let agents = parts[0].lowercased().matches(of: /user-agent: .*/).map { $0.output }
        #expect(agents == ["user-agent: stall-collector"])
        let message = try JSONDecoder().decode(Message.self, from: Data(parts[1].utf8))
        #expect(message.alerts.map(\.state) == ["firing"])
        #expect(message.text == "new faults: new in shop: “naïve()” &lt;!channel&gt; https://stalls.example.com/")
    }

    @Test("Receivers that do not answer hold up no other task of the collector")
    func silentReceivers() async throws {
        let listener = try Listener()
        let address = "http://127.0.0.1:\(listener.port)/"
        let ends = Barrier()
        await ends.open()
        let requests = (0..<64).map { _ in
            Task {
                _ = try? await WebRequest(address, limit: .whole(.seconds(30))).answer(bytes: 1)
                await ends.pass()
            }
        }
        var connections: [Int32] = []
        defer { for connection in connections { close(connection) } }
        // If they held threads of tasks, Dispatch would add one a second, and the first would end before the last begins.
        while connections.count < requests.count {
            if let connection = listener.accepted() { connections.append(connection) }
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(await ends.arrived == 0)
        for request in requests { request.cancel() }
    }

    @Test("A mail has one recipient, a subject, and readable text")
    func mail() async throws {
        let directory = FileManager.default.temporaryDirectory.path + "/stall-mail-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let mailer = directory + "/sendmail"
        try "#!/bin/sh\necho \"$@\" > \(directory)/arguments\ncat > \(directory)/mail\n"
            .write(toFile: mailer, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: mailer)
        let receiver = AlertReceiver(way: .mail(AlertMail(address: "oncall@example.com")))
        try await receiver.send(AlertMessage([Self.alert], nil), mailer: mailer)
        #expect(try String(contentsOfFile: directory + "/arguments", encoding: .utf8) == "-t -oi\n")
        let mail = try String(contentsOfFile: directory + "/mail", encoding: .utf8)
        let parts = mail.split(separator: "\n\n", maxSplits: 1)
        let heads = parts[0].split(separator: "\n")
        #expect(heads.filter { $0.hasPrefix("To: ") } == ["To: oncall@example.com"])
        #expect(heads.contains { $0.hasPrefix("Subject: =?utf-8?B?U3RhbGwgYWxlcnQ6IG5ldyBmYXVsdHM6") })
        #expect(!heads.contains { $0.hasPrefix("From: ") })
        let text = try #require(Data(base64Encoded: String(parts[1]), options: .ignoreUnknownCharacters))
        #expect(String(decoding: text, as: UTF8.self) == "new faults: new in shop: “naïve()” <!channel>")
    }

    @Test("A name with a line break begins no field of a mail, and a long subject is folded")
    func mailFields() throws {
        let mail = AlertMail(address: "oncall@example.com")
        for name in [
            "x\r\nBcc: all@example.com", "=?utf-8?Q?x=0D=0ABcc:_all?=", String(repeating: "naïve😀", count: 90),
        ] {
            var alert = Self.alert
            (alert.text, alert.rule) = (name, name)
            let text = try mail.text(AlertMessage([alert], nil), from: "stalls@example.com")
            let lines = text.components(separatedBy: "\n\n")[0].split(separator: "\n")
            let names = lines.filter { !$0.hasPrefix(" ") }.map { $0.prefix { $0 != ":" } }
            #expect(
                names == [
                    "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
                    "Content-Transfer-Encoding",
                ]
            )
            #expect(lines.allSatisfy { $0.utf8.count <= 200 && $0.utf8.allSatisfy { (0x20...0x7E).contains($0) } })
            #expect(!text.contains("\r") && !text.contains("=0D=0A"))
        }
    }

    @Test("A mail that is sent again has the same id; another alert has another")
    func mailIdentity() throws {
        func id(_ text: String) throws -> Substring? {
            var alert = Self.alert
            alert.text = text
            let mail = try AlertMail(address: "a@example.com").text(AlertMessage([alert], nil), from: nil)
            return mail.split(separator: "\n").first { $0.hasPrefix("Message-ID: <") && $0.hasSuffix(">") }
        }
        let first = try #require(try id("a"))
        #expect(try id("a") == first && id("b") != first)
    }

    @Test(
        "The date of a mail is that of RFC 5322",
        arguments: [(0, "Thu, 01 Jan 1970 00:00:00 +0000"), (1_772_323_199, "Sat, 28 Feb 2026 23:59:59 +0000")]
    )
    func mailDate(seconds: Int64, date: String) { #expect(AlertMail.date(Timestamp(seconds: seconds)) == date) }

    @Test("What a program reads is a file that no other user can open")
    func input() async throws {
        let file = FileManager.default.temporaryDirectory.path + "/stall-input-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: file) }
        let receiver = AlertReceiver(way: .program(["/bin/sh", "-c", "stat -Lc '%a %h' /dev/stdin > \(file)"]))
        try await receiver.send(AlertMessage([Self.alert], nil))
        // Its mode, and the number of its names.
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "600 0\n")
    }

    @Test(
        "A program blocks and ignores no signal, and has no descriptor besides its input and output",
        arguments: [
            ["/bin/grep", "-qE", "^SigBlk:.0+$", "/proc/self/status"],
            // posix_spawn(3) itself lets the two signals be ignored that glibc uses: 32 and 33.
            ["/bin/grep", "-qE", "^SigIgn:.0+(18)?0{7}$", "/proc/self/status"],
            ["/usr/bin/test", "!", "-e", "/proc/self/fd/3"],
        ]
    )
    func heritage(words: [String]) async throws {
        // It ends with 0.
        try await AlertReceiver(way: .program(words)).send(AlertMessage([Self.alert], nil))
    }

    @Test("A program that cannot be started is a failure, with the system's reason")
    func noProgram() async throws {
        let file = FileManager.default.temporaryDirectory.path + "/stall-program-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: file) }
        try "no program".write(toFile: file, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: file)
        let error = await #expect(throws: AlertReceiver.Failure.self) {
            try await AlertReceiver(way: .program([file])).send(AlertMessage([Self.alert], nil))
        }
        #expect(error?.description == "it cannot be started: Exec format error")
    }

    @Test(
        "A program that takes too long is killed with what it started; what has left its group, or outlives it, is not waited for",
        arguments: [
            (start: "", end: "; true", isTold: false, goesOn: false),
            (start: "setsid ", end: "; true", isTold: false, goesOn: true),
            (start: "", end: " &", isTold: true, goesOn: true),
        ]
    )
    func slowProgram(script: (start: String, end: String, isTold: Bool, goesOn: Bool)) async throws {
        let pipe = FileManager.default.temporaryDirectory.path + "/stall-program-\(UUID().uuidString)"
        try #require(unsafe mkfifo(pipe, 0o600) == 0)
        defer { _ = unsafe unlink(pipe) }
        var end = pollfd(fd: unsafe open(pipe, O_RDONLY | O_NONBLOCK), events: Int16(POLLIN), revents: 0)
        defer { close(end.fd) }
        let text = "\(script.start)sh -c 'echo $$; exec sleep 1000' > \(pipe)\(script.end)"
        let receiver = AlertReceiver(way: .program(["/bin/sh", "-c", text]))
        var reason: String?
        do {
            // One that ends by itself may need longer on a busy machine.
            try await receiver.send(AlertMessage([Self.alert], nil), within: .seconds(script.isTold ? 60 : 1))
        } catch let error as AlertReceiver.Failure {
            reason = error.description
        }
        #expect(reason == (script.isTold ? nil : "it took more than 1.0 seconds"))
        // What outlives the program may begin later than the program ends.
        if script.isTold { unsafe poll(&end, 1, 60_000) }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = unsafe read(end.fd, &bytes, bytes.count)
        // Nil if the machine was so slow that it was killed before.
        guard let child = pid_t(String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).dropLast()) else { return }
        if script.goesOn {
            #expect(kill(child, SIGKILL) == 0)
        } else {
            // Nobody can write to it any more.
            #expect(unsafe poll(&end, 1, 60_000) == 1 && read(end.fd, &bytes, bytes.count) == 0)
        }
    }

    @Test("A program is killed when nobody waits for it any more, and its process does not stay behind")
    func cancelledProgram() async throws {
        let pipe = FileManager.default.temporaryDirectory.path + "/stall-program-\(UUID().uuidString)"
        try #require(unsafe mkfifo(pipe, 0o600) == 0)
        defer { _ = unsafe unlink(pipe) }
        var end = pollfd(fd: unsafe open(pipe, O_RDONLY | O_NONBLOCK), events: Int16(POLLIN), revents: 0)
        defer { close(end.fd) }
        let receiver = AlertReceiver(way: .program(["/bin/sh", "-c", "echo $$ > \(pipe); exec sleep 1000"]))
        let sending = Task { try await receiver.send(AlertMessage([Self.alert], nil), within: .seconds(600)) }
        while unsafe poll(&end, 1, 0) == 0 { try await Task.sleep(for: .milliseconds(10)) }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = unsafe read(end.fd, &bytes, bytes.count)
        let program = try #require(pid_t(String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).dropLast()))
        sending.cancel()
        await #expect(throws: CancellationError.self) { try await sending.value }
        // As long as it is there, also one that has ended can be sent a signal.
        while kill(program, 0) == 0 { try await Task.sleep(for: .milliseconds(10)) }
        #expect(errno == ESRCH)
    }

    @Test("A failing mailer is a failure, by its exit code")
    func mailFails() async throws {
        let receiver = AlertReceiver(way: .mail(AlertMail(address: "oncall@example.com")))
        let error = await #expect(throws: AlertReceiver.Failure.self) {
            try await receiver.send(AlertMessage([Self.alert], nil), mailer: "/bin/false")
        }
        #expect(error?.description == "it ended with 1")
    }
}

/// A web server for one request.
private final class Listener: Sendable {
    private let descriptor: Int32
    let port: Int

    init() throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        self.descriptor = descriptor
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = INADDR_LOOPBACK.bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
                guard unsafe bind(descriptor, raw, length) == 0, listen(descriptor, 64) == 0 else { return -1 }
                return unsafe Int(getsockname(descriptor, raw, &length))
            }
        }
        guard status == 0 else { throw URLError(.cannotConnectToHost) }
        port = Int(in_port_t(bigEndian: address.sin_port))
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }

    /// The next connection. Nil if there is none yet.
    func accepted() -> Int32? {
        let connection = accept(descriptor, nil, nil)
        return connection < 0 ? nil : connection
    }

    /// - Returns: the request, or nil if none came within a minute.
    func answerOne() async -> String? {
        var (bytes, connection): ([UInt8], Int32) = ([], -1)
        defer { if connection >= 0 { close(connection) } }
        for _ in 0..<6000 {
            if connection < 0 { connection = accept(descriptor, nil, nil) }
            var part = [UInt8](repeating: 0, count: 65536)
            let count = connection < 0 ? -1 : unsafe recv(connection, &part, part.count, Int32(MSG_DONTWAIT))
            if count > 0 { bytes += part[..<count] }
            let text = String(decoding: bytes, as: UTF8.self)
            if Self.isWhole(text) {
                let answer = Array("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".utf8)
                _ = unsafe send(connection, answer, answer.count, Int32(MSG_NOSIGNAL))
                return text
            }
            try? await Task.sleep(for: .milliseconds(10))
        }
        return nil
    }

    private static func isWhole(_ text: String) -> Bool {
        guard let end = text.range(of: "\r\n\r\n"),
            let length = text[..<end.lowerBound].firstMatch(of: /(?i)content-length: (\d+)/).flatMap({ Int($0.1) })
        else { return false }
        return text[end.upperBound...].utf8.count >= length
    }

    deinit { close(descriptor) }
}
