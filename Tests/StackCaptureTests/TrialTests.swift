import Foundation
import TestSupport
import Testing

/// The trials' short forms; `scripts/trials` runs the long ones. They run in a separate process, because they need the signal,
/// and check descriptors, memory and threads of the whole process.
@Suite(
    "Capture trials",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct TrialTests {
    @Test("every kind of blocking call stays undisturbed")
    func invisible() async throws {
        try await expectMet(Trial.program, "invisible", "--short")
    }

    @Test(
        "twelve loads cause no hang, no leak and no frame that does not exist",
        arguments: testsAllForms ? ["", "1"] : ["1"]
    )
    func storm(arenas: String) async throws {
        try await expectMet(
            "/usr/bin/env",
            "MALLOC_ARENA_MAX=\(arenas)",
            Trial.program,
            "storm",
            "--short"
        )
    }

    @Test("stacks are correct at each instruction of all kinds of code")
    func steps() async throws {
        try await expectMet(Trial.program, "steps", "--short")
    }

    @Test("the caller of Swift's functions without an unwind table is found, at each of their instructions")
    func untabled() async throws {
        try await expectMet(Trial.program, "untabled", "--short")
    }

    @Test("what was read of the heap beside a stack is given up if any byte of it has changed since, and only then")
    func glimpses() async throws {
        try await expectMet(Trial.program, "glimpses")
    }

    @Test(
        "no call is cut short in a thread that computes and makes 100,000 calls a second"
    )
    func race() async throws {
        try await expectMet(Trial.program, "race", "--short")
    }

    @Test(
        "a sleeping thread is not woken, and stacks of 60 frames are complete",
        .longForm,
        arguments: ["pause", "cost"]
    )
    func measured(part: String) async throws {
        try await expectMet(Trial.program, part, "--short")
    }

    @Test(
        "stacks equal gdb's, in over a hundred places",
        .longForm,
        .enabled(
            if: FileManager.default.isExecutableFile(atPath: "/usr/bin/gdb"),
            "gdb is not installed"
        )
    )
    func exact() async throws {
        let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../Fixtures/capture-trials/compare_stacks.py").standardizedFileURL
            .path
        try await expectMet(
            "/usr/bin/env",
            "SHELL=/bin/sh",
            "/usr/bin/gdb",
            "-batch",
            "-nx",
            "-x",
            script,
            "--args",
            Trial.program,
            "exact",
            "--short"
        )
    }

    private func expectMet(_ command: String...) async throws {
        let (status, output) = try await Trial.run(command)
        let lines = output.split(separator: "\n")
        // Failures first: of a long output only the beginning may be shown.
        let failures = lines.filter { $0.contains("FAILED") }
        let told =
            failures
            + lines.filter { line in
                line.hasPrefix("  ") || ["RESULT", "EXACT", "unequal"].contains { line.hasPrefix($0) }
            }
        #expect(status == 0, "\(command): \(told.joined(separator: "\n"))")
        #expect(lines.contains { $0.hasPrefix("RESULT ") && $0.hasSuffix(": met") })
    }
}

private enum Trial {
    static let program = URL.built("capture-trials").path

    static func run(_ command: [String]) async throws -> (status: Int32, output: String) {
        try await onThread {
            unblockSignals()
            return try runBlocking(command)
        }
    }

    private static func runBlocking(_ command: [String]) throws -> (status: Int32, output: String) {
        let process = Process()
        let pipe = Pipe()
        process.executableURL = URL(fileURLWithPath: command[0])
        process.arguments = Array(command.dropFirst())
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        try process.run()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationReason == .exit ? process.terminationStatus : 128, output)
    }

    /// Tests run on dispatch threads, which block most signals, and a child inherits that: gdb does not work without SIGCHLD.
    private static func unblockSignals() {
        var all = sigset_t()
        unsafe sigfillset(&all)
        unsafe pthread_sigmask(SIG_UNBLOCK, &all, nil)
    }
}
