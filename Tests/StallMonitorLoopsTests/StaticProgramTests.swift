import Foundation
import Testing

@Suite("The hooks in a differently built program", .serialized, .timeLimit(.minutes(10)))
struct StaticProgramTests {
    private static let clang = ProcessInfo.processInfo.environment["PATH", default: ""].split(separator: ":")
        .map { "\($0)/clang" }.first { FileManager.default.isExecutableFile(atPath: $0) }

    @Test(
        "In a fully static program each wait behaves as in the C library, and the loop is found",
        .enabled(if: clang != nil, "there is no clang on the PATH")
    )
    func fullyStatic() throws {
        #expect(try Self.run("StaticLoop", ["-static"]) == ["DONE"])
    }

    @Test(
        "A library that is loaded late, and brings Foundation for itself alone, can run Foundation's loop",
        .enabled(if: clang != nil, "there is no clang on the PATH")
    )
    func lateFoundation() throws {
        let (library, flags) = try Self.foundation()
        #expect(try Self.run("LateFoundation", flags, [library]) == ["FIRED"])
    }

    @Test(
        "Foundation's loop is at rest once its outermost run has ended, wherever on the stack it was found",
        .enabled(if: clang != nil, "there is no clang on the PATH")
    )
    func foundationRuns() throws {
        #expect(try Self.run("FoundationRuns", Self.foundation().flags + ["-lFoundation"]) == ["DONE"])
    }

    @Test(
        "A program that contains libdispatch has its jobs counted if it is linked with --wrap=dispatch_async_f",
        .enabled(if: clang != nil, "there is no clang on the PATH"),
        .enabled(if: staticFolder != nil, "the toolchain has no static libraries")
    )
    func jobs() throws {
        let folder = try #require(Self.staticFolder)
        let inside = ["\(folder)/libdispatch.a", "\(folder)/libBlocksRuntime.a", "-lstdc++"]
        let beside = try Self.foundation().flags
        let option = ["-Wl,--wrap=dispatch_async_f"]
        #expect(try Self.run("StaticPool", inside + option) == ["10 submitted, 10 begun"])
        #expect(try Self.run("StaticPool", inside) == ["NOT CALLED", "0 submitted, 0 begun"])
        #expect(try Self.run("StaticPool", beside) == ["10 submitted, 10 begun"])
        #expect(try Self.run("StaticPool", beside + option) == ["10 submitted, 10 begun"])
    }

    /// Where the toolchain has Swift's libraries for linking them into programs.
    private static let staticFolder = (try? foundation()).map { library, _ in
        URL(filePath: library).deletingLastPathComponent().path.replacing("/swift/linux", with: "/swift_static/linux")
    }.flatMap { FileManager.default.fileExists(atPath: "\($0)/libdispatch.a") ? $0 : nil }

    /// Foundation's library, and the linker's flags with which a program finds its folder. Dispatch is there from the start, as in every program of
    /// Swift's.
    private static func foundation() throws -> (library: String, flags: [String]) {
        let file = try #require(FileHandle(forReadingAtPath: "/proc/self/maps"))
        let maps = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self)
        let line = try #require(maps.split(separator: "\n").first { $0.hasSuffix("/libFoundation.so") })
        let library = String(line[try #require(line.firstIndex(of: "/"))...])
        let folder = library.dropLast("/libFoundation.so".count)
        return (library, ["-rdynamic", "-L\(folder)", "-ldispatch", "-Wl,-rpath,\(folder)"])
    }

    /// Compiles the fixture together with the hooks, and runs it.
    ///
    /// - Returns: the lines that it printed.
    private static func run(_ fixture: String, _ flags: [String], _ arguments: [String] = []) throws -> [String] {
        let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let sources = tests.deletingLastPathComponent().appending(path: "Sources")
        let hooks = try FileManager.default.contentsOfDirectory(atPath: sources.appending(path: "CLoopHooks").path)
        // Those of the run loop's files that are independent of Swift.
        let shims = ["poll.c", "clock.c", "task_pool.c", "task_pool_fork.c", "thread.c", "fork.c", "futex.c"]
        let files =
            [tests.appending(path: "Fixtures/\(fixture)/main.c")]
            + hooks.filter { $0.hasSuffix(".c") }.map { sources.appending(path: "CLoopHooks/\($0)") }
            + shims.map { sources.appending(path: "CRunLoopShims/\($0)") }
        let program = FileManager.default.temporaryDirectory.appending(path: "\(fixture)-\(UUID())")
        defer { try? FileManager.default.removeItem(at: program) }
        let includes = ["CLoopHooks", "CRunLoopShims"].map { "-I\(sources.appending(path: "\($0)/include").path)" }
        let clang = try #require(Self.clang)
        _ = try output(of: clang, ["-w", "-O1", "-o", program.path] + includes + files.map(\.path) + flags)
        return try output(of: program.path, arguments)
    }

    private static func output(of program: String, _ arguments: [String]) throws -> [String] {
        let (process, pipe) = (Process(), Pipe())
        process.executableURL = URL(filePath: program)
        process.arguments = arguments
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        try process.run()
        let text = String(decoding: try pipe.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        process.waitUntilExit()
        try #require(process.terminationStatus == 0, "\(program) \(arguments)")
        return text.split(separator: "\n").map(String.init)
    }
}
