import CStalls
import Foundation
import TestSupport
import Testing

/// A host that uses signals, stacks, threads and sandboxes as real hosts do, in a separate process for each of its scenarios.
@Suite(
    "A capture gets along with its host",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct CoexistenceTests {
    @Test("in every scenario each capture ends in time, with a correct stack or a stated reason")
    func everything() async throws {
        try await expectPassed([])
    }

    private static let (jemalloc, tcmalloc) = (path(of: "libjemalloc.so.2"), path(of: "libtcmalloc_minimal.so.4"))
    private static let profiler = path(of: "libprofiler.so.0")

    @Test("with jemalloc preloaded", .enabled(if: jemalloc != nil, "libjemalloc.so.2 is not installed"))
    func preloadedJemalloc() async throws { try await expectPassed(with: #require(Self.jemalloc)) }

    @Test(
        "with tcmalloc preloaded",
        .longForm,
        .enabled(if: tcmalloc != nil, "libtcmalloc_minimal.so.4 is not installed")
    )
    func preloadedTcmalloc() async throws { try await expectPassed(with: #require(Self.tcmalloc)) }

    private func expectPassed(with allocator: String) async throws {
        let scenarios = [
            "handler-info", "alternate-stack-running", "vfork", "thread-exits", "fork-child", "seccomp-kill",
            "exceptions-while-captured",
        ]
        try await expectPassed(scenarios, preloading: allocator)
    }

    @Test(
        "with gperftools' profiler, which uses the same signal",
        .enabled(if: profiler != nil, "libprofiler.so.0 is not installed")
    )
    func besideProfiler() async throws {
        let library = try #require(Self.profiler)
        let text = try await expectPassed(["gperftools-before", "gperftools-after"], preloading: library)
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

    /// Blocks no thread of the tests' pool while the host runs.
    private static func run(_ arguments: [String], preloading library: String?) async throws -> (Int32, String) {
        let process = Process()
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        _ = FileManager.default.createFile(atPath: file.path, contents: nil)
        defer { try? FileManager.default.removeItem(at: file) }
        process.executableURL = .built("coexistence-host")
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
