import Foundation
import HTTPTypes
import StallReading
import StallReports
import StallStore
import Testing

@testable import StallCollector

// Who may do what, and the file that says so.

extension CollectorTests {
    @Test("A token permits what its line says, for its team")
    func tokens() async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let file = directory + "/tokens"
        try "# who may\nred read,write red-token-0123456789\nblue read blue-token-0123456789\n"
            .write(toFile: file, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
        var options = CollectorOptions()
        options.tokens = try Tokens(path: file)
        try await withCollector(options) { client in
            let body = try Self.lines([Self.report()])
            func post(_ token: String?) async throws -> HTTPResponse.Status {
                var headers = Self.kind
                if let token { headers[.authorization] = token }
                return try await client.execute(uri: "/v1/reports", method: .post, headers: headers, body: body) {
                    $0.status
                }
            }
            #expect(try await post(nil) == .unauthorized)
            #expect(try await post("Bearer red-token-012345678") == .unauthorized)
            #expect(try await post("Bearer red-token-0123456789x") == .unauthorized)
            #expect(try await post("Bearer blue-token-0123456789") == .forbidden)
            #expect(try await post("Bearer red-token-0123456789") == .accepted)
            for (token, count) in [("red", 1), ("blue", 0)] {
                let password = Data("anybody:\(token)-token-0123456789".utf8).base64EncodedString()
                try await client.execute(
                    uri: "/api/v1/faults",
                    method: .get,
                    headers: [.authorization: "Basic \(password)"]
                ) {
                    let document = try JSONDecoder().decode(FaultDocument.self, from: Data($0.body))
                    #expect(document.faults.count == count)
                }
            }
            for path in ["/", "/api/v1/records"] {
                #expect(try await client.execute(uri: path, method: .get) { $0.status } == .unauthorized)
            }
            #expect(try await client.execute(uri: "/health", method: .get) { $0.status } == .ok)
        }
    }

    @Test("A token file that others can read, or with an invalid line, is not used")
    func tokenFiles() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let file = directory + "/tokens"
        let cases = [
            ("a read 0123456789abcdef", 0o644), ("a read", 0o600), ("a all 0123456789abcdef", 0o600),
            ("a read short", 0o600), ("", 0o600), ("a read 0123456789abcdef 5", 0o600),
            ("a read 0123456789abcdef -5/s", 0o600),
            ("a read 0123456789abcdef 5/s x", 0o600),
            ("a read 0123456789abcdef\nb write 0123456789abcdef", 0o600),
        ]
        for (text, mode) in cases {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: file)
            #expect(throws: CollectorError.self, "\(text)") { _ = try Tokens(path: file) }
        }
    }

    @Test("A token file may have lines that end by CR LF, blanks at their ends, and a byte order mark")
    func editedTokenFile() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let file = directory + "/tokens"
        func write(_ text: String) throws {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
        }
        let lines = [
            "# who may", "red read,write red-token-0123456789", "blue read blue-token-0123456789 500/s \t", "",
        ]
        for (start, end) in [("", "\n"), ("", "\r\n"), ("\u{FEFF}", "\r\n")] {
            for lines in [lines, Array(lines.dropFirst())] {
                try write(start + lines.joined(separator: end))
                let tokens = try Tokens(path: file)
                #expect(tokens.caller(of: "red-token-0123456789".utf8)?.team == "red", "\(end.debugDescription)")
                #expect(tokens.caller(of: "blue-token-0123456789".utf8)?.recordsPerSecond == 500)
            }
        }
        try write("red read red-token-0123456789\r\n\r\nblue read short\r\n")
        let error = #expect(throws: CollectorError.self) { _ = try Tokens(path: file) }
        #expect(error?.description.hasPrefix("\(file):3: ") == true, "\(error?.description ?? "")")
    }
}
