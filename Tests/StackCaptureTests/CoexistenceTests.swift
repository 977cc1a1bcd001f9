import CStalls
import Foundation
import Testing

/// A host that does what hosts do to signals, stacks, threads and sandboxes, in a process for each of its scenarios.
@Suite("A capture gets along with its host", .serialized, .timeLimit(.minutes(5)))
struct CoexistenceTests {
    @Test("in every scenario: each capture ends in time, in a right stack or a named reason")
    func everything() async throws {
        try await expectPassed([])
    }

    static let allocators = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"]

    @Test("with another allocator preloaded", arguments: allocators)
    func allocator(library: String) async throws {
        guard let path = Self.path(of: library) else { return print("coexistence: \(library) is not installed") }
        let scenarios = [
            "handler-info", "alternate-stack-running", "vfork", "thread-exits", "fork-child", "seccomp-kill",
            "exceptions-while-captured",
        ]
        try await expectPassed(scenarios, preloading: path)
    }

    @Test("with gperftools' profiler, which uses the same signal")
    func profiler() async throws {
        guard let path = Self.path(of: "libprofiler.so.0") else {
            return print("coexistence: no libprofiler installed")
        }
        let text = try await expectPassed(["gperftools-before", "gperftools-after"], preloading: path)
        #expect(!text.contains("skipped"))
    }

    private static func path(of library: String) -> String? {
        ["/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/"].map { $0 + library }
            .first { FileManager.default.fileExists(atPath: $0) }
    }

    @discardableResult
    private func expectPassed(_ scenarios: [String], preloading library: String? = nil) async throws -> String {
        let (status, text) = try await Self.run(["--all"] + scenarios, preloading: library)
        print("coexistence \(library ?? ""):\n\(text)")
        let failed = text.split(separator: "\n").filter { $0.contains(" FAILED ") }
        #expect(status == 0 && failed.isEmpty, "\(failed.joined(separator: "\n"))")
        return text
    }

    /// Holds no thread of the tests' pool while the host runs.
    private static func run(_ arguments: [String], preloading library: String?) async throws -> (Int32, String) {
        let products = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        let process = Process()
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        _ = FileManager.default.createFile(atPath: file.path, contents: nil)
        defer { try? FileManager.default.removeItem(at: file) }
        process.executableURL = products.appendingPathComponent("coexistence-host")
        process.arguments = arguments
        if let library {
            process.environment = ProcessInfo.processInfo.environment.merging(["LD_PRELOAD": library]) { $1 }
        }
        process.standardOutput = try FileHandle(forWritingTo: file)
        process.standardError = FileHandle.nullDevice
        await withCheckedContinuation { (ended: CheckedContinuation<Void, Never>) in
            process.terminationHandler = { _ in ended.resume() }
            do { try process.run() } catch { ended.resume() }
        }
        return (process.terminationStatus, String(decoding: try Data(contentsOf: file), as: UTF8.self))
    }
}
