import Foundation

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
