import Foundation
import TestSupport
import Testing

/// A server for the tests, in a separate process: a Python program that writes its port into FOLDER/port once it
/// listens.
final class PythonServer {
    let url: String
    private let process = Process()

    /// - Parameters:
    ///   - program: its path relative to this folder.
    ///   - certificate: a file with a key and a certificate, if the program then speaks TLS.
    init(_ program: String, in folder: String, certificate: String? = nil) throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let port = folder + "/port"
        try? FileManager.default.removeItem(atPath: port)
        process.executableURL = URL(filePath: "/usr/bin/python3")
        process.arguments = [
            URL(filePath: #filePath).deletingLastPathComponent().appending(path: program).path, folder,
        ]
        if let certificate { process.arguments?.append(certificate) }
        try process.run()
        var number: String?
        for _ in 0..<12_000 where number == nil && process.isRunning {
            number = try? String(contentsOfFile: port, encoding: .utf8)
            if number == nil { usleep(10_000) }
        }
        url = "http\(certificate == nil ? "" : "s")://127.0.0.1:\(try #require(number))"
    }

    func end() {
        process.killIfRunning()
        process.waitUntilExit()
    }

    deinit { end() }
}

/// A server that gives every request the same answer, valid or not. It ends with the test.
struct CannedServer {
    private let folder: String
    private let server: PythonServer
    var url: String { server.url }

    init(in folder: String) throws {
        self.folder = folder
        server = try PythonServer("Collector/canned_server.py", in: folder)
    }

    /// - Parameter length: the Content-Length to send, if not the real one.
    func answer(_ status: String, _ body: some Collection<UInt8>, length: Int? = nil, header: String = "") throws {
        let head = "HTTP/1.1 \(status)\r\nContent-Length: \(length ?? body.count)\r\n\(header)Connection: close\r\n\r\n"
        try (Data(head.utf8) + body).write(to: URL(filePath: folder + "/answer"))
    }

    /// The heads of the requests.
    var asked: String { (try? String(contentsOfFile: folder + "/asked", encoding: .utf8)) ?? "" }
}

/// A real receiver in a separate process, ended with the test. `otlp_receiver.py` describes how to set its answers.
final class OTLPReceiver {
    private let folder: String
    private let server: PythonServer
    var url: String { server.url }

    /// - Parameter folder: where it keeps what it accepted, also for a later receiver.
    init(in folder: String, plan: String? = nil, certificate: String? = nil) throws {
        self.folder = folder
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        if let plan { try plan.write(toFile: folder + "/plan", atomically: true, encoding: .utf8) }
        server = try PythonServer("Shipping/otlp_receiver.py", in: folder, certificate: certificate)
    }

    struct Request: Decodable {
        var path: String
        var headers: [String: String]
        var body: Body

        struct Body: Decodable { var resourceLogs: [Resource]? }
        struct Resource: Decodable { var scopeLogs: [Scope] }
        struct Scope: Decodable { var logRecords: [Record] }
        struct Record: Decodable { var attributes: [Attribute] }
        struct Attribute: Decodable {
            var key: String
            var value: Value
        }
        struct Value: Decodable { var stringValue: String? }

        /// An attribute of each record.
        func all(_ key: String) -> [String] {
            (body.resourceLogs ?? []).flatMap(\.scopeLogs).flatMap(\.logRecords)
                .compactMap { $0.attributes.first { $0.key == key }?.value.stringValue }
        }
    }

    /// What it accepted, in order.
    func accepted() throws -> [Request] {
        guard let text = try? String(contentsOfFile: folder + "/accepted", encoding: .utf8) else { return [] }
        // Without a line that is being written: of a command that was killed the last request may still come.
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
        return try lines.map { try JSONDecoder().decode(Request.self, from: Data($0.utf8)) }
    }

    /// The stalls that it accepted, in order.
    func stalls() throws -> [String] { try accepted().flatMap { $0.all("stall.id") } }

    /// Waits until it has accepted this many.
    func awaitStalls(_ count: Int) throws {
        for _ in 0..<6000 {
            if try stalls().count >= count { return }
            usleep(10_000)
        }
        Issue.record("the receiver has \(try stalls().count) stalls of \(count)")
    }

    func end() { server.end() }
}
