import CStalls
import Foundation
import Testing

/// The trials' short forms; `scripts/trials` runs the long ones. They run in a process of their own: they need the signal, and judge
/// descriptors, memory and threads of the whole process.
@Suite("Captures on trial", .serialized, .timeLimit(.minutes(5)))
struct TrialTests {
    @Test("leave every kind of blocking call undisturbed")
    func invisible() async throws {
        try await expectMet("invisible")
    }

    private func expectMet(_ arguments: String...) async throws {
        let (status, output) = try await Trial.run(arguments + ["--short"])
        print(output)
        #expect(status == 0, "\(output.split(separator: "\n").filter { $0.contains("FAILED") })")
    }
}

private enum Trial {
    /// Waits without a thread of Swift's: there are only a few of those.
    static func run(_ arguments: [String]) async throws -> (status: Int32, output: String) {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(with: Result { try runBlocking(arguments) })
            }
        }
    }

    private static func runBlocking(_ arguments: [String]) throws -> (status: Int32, output: String) {
        let products = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        let process = Process()
        let pipe = Pipe()
        process.executableURL = products.appendingPathComponent("capture-trials")
        process.arguments = arguments
        process.standardOutput = pipe
        process.standardError = pipe
        try process.run()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationReason == .exit ? process.terminationStatus : 128, output)
    }
}
