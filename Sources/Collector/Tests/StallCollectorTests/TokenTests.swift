import Foundation
import HTTPTypes
import Logging
import StallReports
import StallStore
import Testing

@testable import StallCollector

/// The file of tokens, and its changes.
@Suite("Tokens", .timeLimit(.minutes(5)))
struct TokenTests {
    @Test("Its own metrics need access to all teams; tokens change with their file")
    func tokens() async throws {
        try await Samples.withStore { store, directory in
            let file = directory + "/tokens"
            // It gets its name when it has its mode: otherwise it could be refused in between.
            @Sendable func write(_ text: String, mode: Int = 0o600) throws {
                let next = file + ".next"
                try text.write(toFile: next, atomically: false, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: next)
                try #require(unsafe rename(next, file) == 0)
            }
            try write("red read,write red-token-0123456789\nops metrics ops-token-0123456789\n")
            var options = CollectorOptions()
            options.tokens = try Tokens(path: file)
            options.tokensEvery = .milliseconds(10)
            options.audit = directory + "/audit"
            try await Client.withServer(store, options) { client in
                func get(_ path: String, _ token: String) async throws -> HTTPResponse.Status {
                    try await client.execute(
                        uri: path,
                        method: .get,
                        headers: [.authorization: "Bearer \(token)-token-0123456789"]
                    ) { $0.status }
                }
                #expect(try await get("/metrics", "red") == .forbidden)
                #expect(try await get("/metrics", "ops") == .ok)
                #expect(try await get("/api/v1/faults", "ops") == .forbidden)
                #expect(try await get("/api/v1/faults", "red") == .ok)
                // Does not try the new token meanwhile: an address that sends many wrong ones is answered by 429.
                func awaitOutcome(_ outcome: String, times: Int = 1) async throws {
                    while try String(contentsOfFile: directory + "/audit", encoding: .utf8)
                        .components(separatedBy: "\"outcome\":\"\(outcome)\"").count <= times
                    { try await Task.sleep(for: .milliseconds(10)) }
                }
                let viewer = try Connection(port: client.port)
                _ = viewer.send(
                    "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer red-token-0123456789\r\n\r\n"
                )
                var events = try #require(await viewer.receive())
                #expect(events.hasPrefix("HTTP/1.1 200"))
                try write("blue read,write blue-token-0123456789\n")
                try await awaitOutcome("read")
                // Nobody is shown more with a token that was removed: the answer ends.
                for _ in 0..<20 where !events.hasSuffix("\r\n0\r\n\r\n") { events += await viewer.receive() ?? "" }
                #expect(events.hasSuffix("\r\n0\r\n\r\n"))
                #expect(try await get("/api/v1/faults", "blue") == .ok)
                #expect(try await get("/api/v1/faults", "red") == .unauthorized)
                // An unusable file changes nothing.
                try write("nonsense\n")
                try await awaitOutcome("refused")
                #expect(try await get("/api/v1/faults", "blue") == .ok)
                // One that everybody may read is taken once its mode is mended.
                try write("green read green-token-0123456789\n", mode: 0o644)
                try await awaitOutcome("refused", times: 2)
                try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
                try await awaitOutcome("read", times: 2)
                #expect(try await get("/api/v1/faults", "green") == .ok)
            }
        }
    }

    @Test("A change of the tokens' file while the collector starts is noticed")
    func changeAtStart() async throws {
        try await Samples.withStore { _, directory in
            let path = directory + "/tokens"
            func write(_ text: String) throws {
                try text.write(toFile: path, atomically: true, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
            }
            try write("red read red-token-0123456789\n")
            let tokens = try Tokens(path: path)
            try write("green read green-token-0123456789\n")
            let file = TokenFile(
                tokens,
                every: .seconds(3600),
                audit: nil,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            file.refresh()
            #expect(file.caller(of: "green-token-0123456789".utf8)?.team == "green")
            #expect(file.caller(of: "red-token-0123456789".utf8) == nil)
        }
    }

    @Test("The tokens' file may be a link, as Kubernetes mounts a secret: the file to which it leads counts")
    func mountedTokens() async throws {
        try await Samples.withStore { _, directory in
            /// Changes the secret as Kubernetes does: a link to the directory of its new version replaces the one to the old.
            func mount(_ version: String, _ text: String, mode: Int = 0o440) throws {
                let folder = "\(directory)/\(version)"
                try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
                try text.write(toFile: folder + "/tokens", atomically: false, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: folder + "/tokens")
                try FileManager.default.createSymbolicLink(
                    atPath: directory + "/..data_tmp",
                    withDestinationPath: version
                )
                try #require(unsafe rename(directory + "/..data_tmp", directory + "/..data") == 0)
            }
            let path = directory + "/tokens"
            try mount("first", "red read red-token-0123456789\n")
            try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "..data/tokens")
            let file = TokenFile(
                try Tokens(path: path),
                every: .seconds(3600),
                audit: nil,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            func team(_ token: String) -> String? { file.caller(of: token.utf8)?.team }
            #expect(team("red-token-0123456789") == "red")
            try mount("second", "blue read blue-token-0123456789\n")
            file.refresh()
            #expect(team("blue-token-0123456789") == "blue" && team("red-token-0123456789") == nil)
            try mount("third", "green read green-token-0123456789\n", mode: 0o444)
            file.refresh()
            #expect(team("blue-token-0123456789") == "blue" && team("green-token-0123456789") == nil)
        }
    }

    @Test("A tokens' file for which no descriptor was left is read again, although it has not changed since")
    func tokensWithoutDescriptors() async {
        await #expect(processExitsWith: .success) {
            let path = FileManager.default.temporaryDirectory.path + "/stall-tokens-\(UUID())"
            defer { try? FileManager.default.removeItem(atPath: path) }
            func write(_ text: String) throws {
                try text.write(toFile: path, atomically: true, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
            }
            try write("red read red-token-0123456789\n")
            let file = TokenFile(
                try Tokens(path: path),
                every: .seconds(3600),
                audit: nil,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            try write("green read green-token-0123456789\n")
            var limit = rlimit(rlim_cur: 256, rlim_max: 256)
            try #require(unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            var hoard: [Int32] = []
            while true {
                let descriptor = unsafe open("/dev/null", O_RDONLY)
                guard descriptor >= 0 else { break }
                hoard.append(descriptor)
            }
            file.refresh()
            for descriptor in hoard { close(descriptor) }
            #expect(file.caller(of: "green-token-0123456789".utf8) == nil)
            file.refresh()
            #expect(file.caller(of: "green-token-0123456789".utf8)?.team == "green")
        }
    }
}
