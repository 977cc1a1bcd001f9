import Foundation
import TestSupport

/// One run of the built command until it exits.
struct CommandRun {
    let output: String
    let errors: String
    /// The exit code, or 128 plus the signal's number, as a shell reports it.
    let status: Int32

    init(_ arguments: String..., environment: [String: String] = [:], directory: String? = nil) throws {
        try self.init(arguments: arguments, environment: environment, directory: directory)
    }

    init(arguments: [String], environment: [String: String] = [:], directory: String? = nil) throws {
        let process = Self.process(arguments, environment: environment)
        if let directory { process.currentDirectoryURL = URL(filePath: directory) }
        try self.init(process)
    }

    /// Runs a system tool.
    init(tool: String, _ arguments: [String]) throws {
        let process = Process()
        process.executableURL = URL(filePath: tool)
        process.arguments = arguments
        process.standardInput = FileHandle.nullDevice
        try self.init(process)
    }

    private init(_ process: Process) throws {
        // Files, not pipes: nothing has to be read while it runs.
        let files = try (0..<2).map { _ in try TemporaryFile() }
        (process.standardOutput, process.standardError) = (files[0].handle, files[1].handle)
        try process.runWithSignals()
        process.waitUntilExit(atMost: .seconds(600))
        (output, errors) = (try files[0].text(), try files[1].text())
        status = Self.status(of: process)
    }

    static func process(_ arguments: [String], environment: [String: String] = [:]) -> Process {
        let process = Process()
        process.executableURL = executable
        process.arguments = arguments
        // MUTANT: which mutation is active (scripts/mutate).
        process.environment = ProcessInfo.processInfo.environment.filter { $0.key == "MUTANT" }
            .merging(["PATH": "/usr/bin:/bin", "TZ": "UTC"]) { $1 }.merging(environment) { $1 }
        process.standardInput = FileHandle.nullDevice
        return process
    }

    static func status(of process: Process) -> Int32 {
        process.terminationStatus + (process.terminationReason == .uncaughtSignal ? 128 : 0)
    }

    /// Built beside the tests.
    static let executable = URL.built("stall-monitor")
}

private final class TemporaryFile {
    let handle: FileHandle
    private let path = NSTemporaryDirectory() + "stall-output-" + UUID().uuidString

    init() throws {
        try Data().write(to: URL(filePath: path))
        handle = try FileHandle(forUpdating: URL(filePath: path))
    }

    func text() throws -> String { String(decoding: try Data(contentsOf: URL(filePath: path)), as: UTF8.self) }

    deinit { try? FileManager.default.removeItem(atPath: path) }
}
