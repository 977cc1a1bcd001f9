import Foundation
import TestSupport
import Testing

@testable import Symbolication

/// A directory for one test, with compiled files and the tools to change them.
final class Workshop: Sendable {
    let folder = NSTemporaryDirectory() + "symbol-workshop-\(UUID().uuidString)"

    init() throws { try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true) }

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    func path(_ name: String) -> String { folder + "/" + name }

    func write(_ text: String, to name: String) throws {
        try text.write(toFile: path(name), atomically: true, encoding: .utf8)
    }

    /// Runs a tool in the directory. Throws if it fails.
    @discardableResult
    func run(_ tool: String, _ arguments: [String], environment: [String: String] = [:]) throws -> String {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = [tool] + arguments
        process.currentDirectoryURL = URL(filePath: folder)
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let log = path("output-\(UUID().uuidString)")
        _ = FileManager.default.createFile(atPath: log, contents: nil)
        let file = try FileHandle(forWritingTo: URL(filePath: log))
        process.standardOutput = file
        process.standardError = file
        try process.run()
        process.waitUntilExit()
        let output = try String(contentsOfFile: log, encoding: .utf8)
        guard process.terminationStatus == 0 else { throw ToolError(text: "\(tool): \(output)") }
        return output
    }

    struct ToolError: Error { let text: String }

    /// A C program with a chain of inlined calls, with debug information.
    func makeProgram(_ name: String = "program", compiler: String = "gcc", flags: [String] = ["-g", "-O2"]) throws {
        try write(Self.program, to: name + ".c")
        try run(compiler, flags + ["-Wl,--build-id=sha1", "-o", name, name + ".c"])
    }

    /// The program that symbolicates addresses of files, for tests that need a separate process.
    static let benchmark = URL.built("SymbolBenchmark").path

    static let program = """
        static inline __attribute__((always_inline)) int innermost(volatile int *x) {
            return *x * 3;
        }
        static inline __attribute__((always_inline)) int middle(volatile int *x) {
            return innermost(x) + 1;
        }
        __attribute__((noinline)) int outer(volatile int *x) {
            return middle(x) + 2;
        }
        int main(void) { volatile int x = 1; return outer(&x); }
        """

    /// Functions with their address and size, by nm(1).
    func functions(of name: String) throws -> [(name: String, start: UInt, size: UInt)] {
        try run("nm", ["-S", "-n", name]).split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ")
            guard fields.count == 4, "tTwW".contains(fields[2]), let start = UInt(fields[0], radix: 16),
                let size = UInt(fields[1], radix: 16)
            else { return nil }
            return (String(fields[3]), start, size)
        }
    }

    func buildID(of name: String) throws -> String? {
        try ELFFile(path: path(name), Allowance(.tool)).buildID
    }

    /// Symbolicates addresses in a file of the directory, like a command for an old report.
    func resolve(
        _ name: String,
        _ offsets: [UInt],
        buildID: String? = nil,
        path: String? = nil,
        search: SymbolSearch = SymbolSearch(systemDirectories: []),
        budget: SymbolicationBudget = .tool
    ) throws -> Resolution {
        let id = try buildID ?? self.buildID(of: name)
        return Symbolicator(search: search).resolve(
            offsets.map { ModulePlace(module: 0, offset: $0, isReturnAddress: false) },
            in: [LoadedModule(path: path ?? self.path(name), buildID: id, loadBase: 0)],
            budget: budget
        )
    }

    /// An address inside `outer` that belongs to the innermost inlined call.
    func innermostPlace(of name: String) throws -> UInt {
        let outer = try #require(try functions(of: name).first { $0.name == "outer" })
        let places = (outer.start..<outer.start + outer.size).map { $0 }
        let result = try resolve(name, places)
        return try #require(result.frames.first { $0.inlined.count == 2 }).moduleOffset
    }
}

extension SymbolicatedFrame {
    /// The names, innermost first.
    var callNames: [String?] { inlined.map(\.symbol) + [symbol] }
    var callLines: [Int?] { inlined.map { $0.location?.line } + [location?.line] }
}
