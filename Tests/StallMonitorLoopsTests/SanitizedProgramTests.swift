import Foundation
import TestSupport
import Testing

/// A sanitizer brings definitions of its own for the calls that loops wait in, and the thread sanitizer also for those by which jobs are submitted.
/// The fixtures are linked once more with a sanitizer, from the objects that they were built of.
@Suite("The hooks in a program with a sanitizer", .serialized, .timeLimit(.minutes(10)))
struct SanitizedProgramTests {
    enum Sanitizer: String, CaseIterable {
        case address, thread

        /// What its library is called.
        var library: String { self == .address ? "asan" : "tsan" }
    }

    /// Whether there are a compiler, the sanitizers' libraries and the fixtures' objects.
    private static let canLink: Bool = {
        guard swiftc != nil, let clang = tool("clang"), isThere(products.appending(path: "loop-host.product")),
            let directory = try? output(of: clang, ["-print-resource-dir"]).lines.first,
            let files = try? FileManager.default.contentsOfDirectory(atPath: directory + "/lib/linux")
        else { return false }
        return Sanitizer.allCases.allSatisfy { sanitizer in
            files.contains { $0.hasPrefix("libclang_rt.\(sanitizer.library)-") && $0.hasSuffix(".a") }
        }
    }()

    private static let products = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
    private static let swiftc = tool("swiftc")

    @Test(
        "It is said once, and clearly, that loops are not watched; the program goes on as without the monitor",
        .enabled(if: canLink, "there is no sanitizer for this compiler, or the fixtures' objects are elsewhere"),
        arguments: Sanitizer.allCases
    )
    func loops(_ sanitizer: Sanitizer) throws {
        let run = try Self.run("loop-host", "stalls", sanitizer)
        #expect(run.status == 0, "\(run.lines)")
        try expectOneFault(run.lines, "do not reach StallMonitorLoops", "sanitizer", "stall-monitor watch")
    }

    @Test(
        "The task pool is watched beside the address sanitizer; beside the thread sanitizer it is said once that it is not",
        .enabled(if: canLink, "there is no sanitizer for this compiler, or the fixtures' objects are elsewhere"),
        arguments: Sanitizer.allCases
    )
    func pools(_ sanitizer: Sanitizer) throws {
        let run = try Self.run("pool-host", "short", sanitizer)
        #expect(run.status == 0, "\(run.lines)")
        #expect(run.lines.count { $0.hasPrefix("job ") } == 60)
        if sanitizer == .thread {
            try expectOneFault(run.lines, "The task pool is not watched", "sanitizer", "stall-monitor watch")
        } else {
            #expect(!run.lines.contains { $0.hasPrefix("fault") }, "\(run.lines)")
        }
    }

    private func expectOneFault(_ lines: [String], _ words: String...) throws {
        let faults = lines.filter { $0.hasPrefix("fault") }
        try #require(faults.count == 1, "\(lines)")
        for word in words { #expect(faults[0].contains(word), "\(faults[0])") }
    }

    // Linking and running

    private static func run(_ host: String, _ scene: String, _ sanitizer: Sanitizer) throws
        -> (lines: [String], status: Int32)
    {
        let scratch = FileManager.default.temporaryDirectory.appending(path: "sanitized-\(UUID())")
        defer { try? FileManager.default.removeItem(at: scratch) }
        try FileManager.default.createDirectory(at: scratch, withIntermediateDirectories: true)
        let program = scratch.appending(path: host).path
        let objects = products.appending(path: "\(host).product/Objects.LinkFileList").path
        // The package's build gives a program's main function a name of its own.
        let start = "--defsym=main=\(host.replacing("-", with: "_"))_main"
        let link = try output(
            of: try #require(swiftc),
            [
                "-sanitize=\(sanitizer)", "-emit-executable", "@\(objects)", "-o", program, "-lz", "-lstdc++",
                "-Xlinker", start,
            ]
        )
        try #require(link.status == 0, "\(link.lines)")
        return try output(of: "/usr/bin/timeout", ["--signal=KILL", "240", program, scratch.path, scene])
    }

    /// - Returns: what the program printed on standard output. It reports no leaks: of that the runtime and the fixtures have some.
    private static func output(of program: String, _ arguments: [String]) throws -> (lines: [String], status: Int32) {
        let (process, pipe) = (Process(), Pipe())
        process.executableURL = URL(filePath: program)
        process.arguments = arguments
        process.environment = ProcessInfo.processInfo.environment.merging([
            "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "report_thread_leaks=0",
        ]) { $1 }
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        try process.run()
        let text = String(decoding: try pipe.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        process.waitUntilExit()
        return (text.split(separator: "\n").map(String.init), process.terminationStatus)
    }

    private static func tool(_ name: String) -> String? {
        ProcessInfo.processInfo.environment["PATH", default: ""].split(separator: ":").map { "\($0)/\(name)" }
            .first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    private static func isThere(_ file: URL) -> Bool { FileManager.default.fileExists(atPath: file.path) }
}
