import Foundation
import Testing

/// A server in a process of its own that answers every request the same, be that sense or not. It ends with the test.
final class CannedServer {
    let url: String
    private let folder: String
    private let process = Process()

    init(in folder: String) throws {
        self.folder = folder
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        process.executableURL = URL(filePath: "/usr/bin/python3")
        let program = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "canned_server.py").path
        process.arguments = [program, folder]
        try process.run()
        var number: String?
        for _ in 0..<3000 where number == nil && process.isRunning {
            number = try? String(contentsOfFile: folder + "/port", encoding: .utf8)
            if number == nil { usleep(10_000) }
        }
        url = "http://127.0.0.1:\(try #require(number))"
    }

    /// - Parameter length: what the answer says of its length.
    func answer(_ status: String, _ body: some Collection<UInt8>, length: Int? = nil, header: String = "") throws {
        let head = "HTTP/1.1 \(status)\r\nContent-Length: \(length ?? body.count)\r\n\(header)Connection: close\r\n\r\n"
        try (Data(head.utf8) + body).write(to: URL(filePath: folder + "/answer"))
    }

    /// The requests' heads.
    var asked: String { (try? String(contentsOfFile: folder + "/asked", encoding: .utf8)) ?? "" }

    deinit {
        // Not SIGTERM: the test's thread blocks most signals, and a child inherits that.
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }
}
