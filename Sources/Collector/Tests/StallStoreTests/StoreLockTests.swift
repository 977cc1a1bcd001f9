import Foundation
import Glibc
import Testing

@testable import StallStore

@Suite("The lock of a store's file", .timeLimit(.minutes(1)))
struct StoreLockTests {
    @Test("One at a time has it, by whatever link; another file has another")
    func exclusion() async throws {
        try await SQLiteSamples.withDirectory { directory in
            let path = directory + "/stalls.db"
            // The lock is there before the store's file is.
            let first = try #require(try StoreLock.take(path))
            #expect(first.isCertain)
            #expect(try StoreLock.take(path) == nil)
            withExtendedLifetime(first) {}
            try Data().write(to: URL(filePath: path))
            try FileManager.default.createSymbolicLink(atPath: directory + "/link.db", withDestinationPath: path)
            #expect(try StoreLock.take(directory + "/link.db") == nil)
            #expect(try StoreLock.take(directory + "/other.db") != nil)
            let mode = try FileManager.default.attributesOfItem(atPath: path + ".lock")[.posixPermissions] as? Int
            #expect(mode == 0o600)
            withExtendedLifetime(first) {}
        }
    }

    @Test("It is waited for as long as it may take, and taken as soon as it is free")
    func waiting() async throws {
        try await SQLiteSamples.withDirectory { directory in
            let path = directory + "/stalls.db"
            var first = try StoreLock.take(path)
            #expect(first != nil)
            #expect(try await StoreLock.wait(for: path, .milliseconds(1)) == nil)
            let waiting = Task { try await StoreLock.wait(for: path, .seconds(3600)) }
            try await Task.sleep(for: .milliseconds(150))
            first = nil
            let second = try await waiting.value
            #expect(second != nil)
            #expect(try StoreLock.take(path) == nil)
            withExtendedLifetime(second) {}
        }
    }

    @Test("Opening and closing the store does not release it, and a program that is started does not get it")
    func independence() async throws {
        try await SQLiteSamples.withDirectory { directory in
            let path = directory + "/stalls.db"
            var lock = try StoreLock.take(path)
            for _ in 0..<2 { _ = try SQLiteStore(path: path) }
            #expect(lock != nil)
            #expect(try StoreLock.take(path) == nil)
            #expect(try Self.closesOnExec(path + ".lock"))
            lock = nil
            #expect(try StoreLock.take(path) != nil)
        }
    }

    /// Whether this process has the file open, and programs that it starts do not inherit it.
    private static func closesOnExec(_ file: String) throws -> Bool {
        let files = FileManager.default
        let number = try files.contentsOfDirectory(atPath: "/proc/self/fd").first {
            (try? files.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)"))?.hasSuffix(file) == true
        }
        let info = try String(contentsOfFile: "/proc/self/fdinfo/\(try #require(number))", encoding: .utf8)
        let flags = try #require(info.firstMatch(of: /flags:\s*([0-7]+)/)?.1)
        return Int32(flags, radix: 8).map { $0 & O_CLOEXEC != 0 } ?? false
    }

    @Test("Where its file cannot be opened, the error says which file and why")
    func unusable() async throws {
        try await SQLiteSamples.withDirectory { directory in
            let path = directory + "/none/stalls.db"
            let error = #expect(throws: StoreError.self) { _ = try StoreLock.take(path) }
            let reason = "\(path).lock cannot be opened: No such file or directory"
            #expect(error?.description == "the store \(path) cannot be used: \(reason)")
        }
    }
}
