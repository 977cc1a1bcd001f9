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
