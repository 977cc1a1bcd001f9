import Foundation
import TestSupport
import Testing

/// A server whose disk really fails, in a separate process with its own mounts and failing system calls.
@Suite(
    "Disks that fail",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct DiskTests {
    @Test(
        "A disk that refuses writes is reported once; the reports wait in memory, without drafts, until it works",
        arguments: [
            "create", "write", "fsync", "rename", "full", "inodes", "read-only", "forbidden",
        ]
    )
    func refusing(scenario: String) async throws {
        let output = try await run(scenario)
        #expect(
            output == [
                "missing before: 0",
                "missing meanwhile: all, drafts: 0",
                "[\"refused\"]",
                "[\"refused\", \"mended refused\"]",
                "missing after: 0, drafts: 0",
                "lost: 0, waiting: 0, state: stopped",
            ]
        )
    }

    @Test("A removed report directory is created again at the next report, and no fault is reported")
    func removed() async throws {
        let output = try await run("removed")
        #expect(output == ["[] true"])
    }

    @Test("While a disk refuses changes of the live record, the record still shows that its process lives")
    func record() async throws {
        let output = try await run("record")
        #expect(output == ["lives: true", "lives: true", "[]"])
    }

    @Test("A directory that cannot be listed is not an empty one")
    func list() async throws {
        let output = try await run("list")
        #expect(output == ["io"])
    }

    @Test("A disk that does not answer delays no event, and gets the missed reports when it answers")
    func hanging() async throws {
        let output = try await run("hang")
        #expect(
            output == [
                "[\"hangs\"] true", "[\"hangs\", \"mended hangs\"] missing: 0", "lost: 0, longest: true",
            ]
        )
    }

    @Test("A process that is stopped while it writes does not report that its disk hangs")
    func stopped() async throws {
        let output = try await run("stopped")
        #expect(output == ["[] missing: 0"])
    }

    @Test("Stop returns even if the disk never answers, and says that reports are lost")
    func stopping() async throws {
        let output = try await run("hang-stop")
        #expect(output == ["[\"hangs\", \"lost\"]"])
    }

    @Test("The watchdog's thread opens, writes and synchronises no file on a disk; the writer's does")
    func watchdog() async throws {
        let output = try await run("touches")
        #expect(output == ["watchdog: 0 ", "writer: true"])
    }

    /// The lines that a fixture printed.
    private func run(_ scenario: String) async throws -> [String] {
        // A real disk can hang for other reasons.
        let directory = TemporaryDirectory(inMemory: true)
        defer { withExtendedLifetime(directory) {} }
        let output = URL(filePath: directory.path + "/output")
        _ = FileManager.default.createFile(atPath: output.path, contents: nil)
        let process = Process()
        process.executableURL = .built("DiskFixture")
        process.arguments = [scenario, directory.path]
        process.standardOutput = try FileHandle(forWritingTo: output)
        // Waiting for it blocks no thread.
        try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
            process.terminationHandler = { _ in done.resume() }
            do { try process.run() } catch { done.resume(throwing: error) }
        }
        #expect(process.terminationStatus == 0)
        return try String(contentsOf: output, encoding: .utf8).split(separator: "\n").map(String.init)
    }
}
