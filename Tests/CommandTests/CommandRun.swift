import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

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

/// A run of the built command that continues, read line by line as it writes.
final class RunningCommand {
    private let process: Process
    private let output = Pipe()
    private let errors = Pipe()
    private let input = Pipe()
    private var pending: [ObjectIdentifier: Data] = [:]

    convenience init(
        _ arguments: String...,
        environment: [String: String] = [:],
        executable: URL = CommandRun.executable
    ) throws {
        try self.init(arguments: arguments, environment: environment, executable: executable)
    }

    init(
        arguments: [String],
        environment: [String: String] = [:],
        executable: URL = CommandRun.executable
    ) throws {
        process = CommandRun.process(arguments, environment: environment)
        process.executableURL = executable
        (process.standardInput, process.standardOutput, process.standardError) = (input, output, errors)
        try process.runWithSignals()
    }

    /// On a terminal of its own, without colours: what it shows, including standard error, is the output; what the
    /// test sends is typed.
    ///
    /// - Parameters:
    ///   - settings: print the terminal's settings before and after the run (stty -g); Ctrl-C ends nothing
    ///     else.
    ///   - goesOn: The same, in a shell with job control, which lets the command go on after it has been stopped.
    init(
        onTerminal arguments: String...,
        columns: Int = 80,
        lines: Int = 24,
        terminal: String = "xterm",
        settings: Bool = false,
        goesOn: Bool = false
    ) throws {
        process = CommandRun.process([], environment: ["NO_COLOR": "1", "TERM": terminal])
        process.executableURL = URL(filePath: "/usr/bin/script")
        let size = "stty cols \(columns) rows \(lines); "
        let words = ([CommandRun.executable.path] + arguments).map { "'\($0)'" }.joined(separator: " ")
        var command = "exec \(words)"
        if settings { command = "trap : INT; stty -g; \(words); echo \"status $?\"; stty -g" }
        if goesOn {
            command = "set -m; stty -g; \(words); echo \"status $?\"; stty -g; fg; echo \"status $?\"; stty -g"
        }
        process.arguments = ["--quiet", "--flush", "--return", "--command", size + command, "/dev/null"]
        (process.standardInput, process.standardOutput, process.standardError) = (input, output, errors)
        try process.runWithSignals()
    }

    /// The next line of standard output; waits for it. Nil at the end.
    func line() throws -> String? { try line(of: output) }

    /// The next line of standard error.
    func errorLine() throws -> String? { try line(of: errors) }

    /// The output up to and including a text; waits for it. Nil if the output ends first.
    func output(until text: String) throws -> String? {
        let key = ObjectIdentifier(output)
        while true {
            let data = pending[key] ?? Data()
            if let range = data.range(of: Data(text.utf8)) {
                pending[key] = Data(data[range.upperBound...])
                return String(decoding: data[..<range.upperBound], as: UTF8.self)
            }
            let more = try more(of: output)
            if more.isEmpty { return nil }
            pending[key] = data + more
        }
    }

    var isRunning: Bool { process.isRunning }

    var pid: Int32 { process.processIdentifier }

    /// Writes to its standard input.
    func send(_ text: String) throws { try input.fileHandleForWriting.write(contentsOf: Data(text.utf8)) }

    func send(_ signal: Int32) { kill(process.processIdentifier, signal) }

    func closeOutput() throws { try output.fileHandleForReading.close() }

    /// Waits for its end. A command that goes on for three minutes is killed.
    func status() -> Int32 {
        process.waitUntilExit(atMost: .milliseconds(Int(Self.patienceMilliseconds)))
        return CommandRun.status(of: process)
    }

    private func line(of pipe: Pipe) throws -> String? {
        let key = ObjectIdentifier(pipe)
        while true {
            let data = pending[key] ?? Data()
            if let end = data.firstIndex(of: UInt8(ascii: "\n")) {
                pending[key] = Data(data[data.index(after: end)...])
                return String(decoding: data[..<end], as: UTF8.self)
            }
            let more = try more(of: pipe)
            if more.isEmpty { return nil }
            pending[key] = data + more
        }
    }

    /// Empty at the end of the output.
    private func more(of pipe: Pipe) throws -> Data {
        var polled = pollfd(fd: pipe.fileHandleForReading.fileDescriptor, events: Int16(POLLIN), revents: 0)
        guard unsafe poll(&polled, 1, Self.patienceMilliseconds) != 0 else { throw Silence() }
        return pipe.fileHandleForReading.availableData
    }

    /// What a test waits for does not come: better a failure than a run without end.
    private struct Silence: Error, CustomStringConvertible {
        var description: String {
            "the command has printed nothing for \(RunningCommand.patienceMilliseconds / 1000) s"
        }
    }

    private static let patienceMilliseconds: Int32 = 180_000

    deinit {
        if process.isRunning { process.terminate() }
    }
}

/// A watched process (`stall-corpus --host`) whose stalls are ordered from outside.
final class StallHostRun {
    let pid: Int32
    let directory: String
    private let command: RunningCommand

    init(directory: String) throws {
        self.directory = directory
        let program = URL.built("stall-corpus")
        command = try RunningCommand("--host", directory, executable: program)
        pid = command.pid
        #expect(try command.line() == "ready")
    }

    /// Orders a stall and does not wait for its end.
    func stall(_ fault: String, milliseconds: Int) throws {
        try command.send("\(fault) \(milliseconds)\n")
    }

    /// Waits up to two minutes until there is a report that satisfies the condition.
    func report(where condition: (StallReport) -> Bool) throws -> StallReport {
        var follower = try ReportFollower(path: directory)
        let deadline = ContinuousClock.now + .seconds(120)
        while case .some(let event) = try follower.next(timeout: deadline - .now) {
            if case .report(let report) = event, condition(report) { return report }
        }
        throw CocoaError(.fileReadUnknown)
    }

    func send(_ signal: Int32) { command.send(signal) }

    func status() -> Int32 { command.status() }

    /// The ids of the process's threads, by name.
    func threadID(named name: String) throws -> Int32 {
        let tasks = "/proc/\(pid)/task"
        for entry in try FileManager.default.contentsOfDirectory(atPath: tasks) {
            // Empty if the thread has ended since.
            if procText("\(tasks)/\(entry)/comm") == "\(name)\n" { return try #require(Int32(entry)) }
        }
        throw CocoaError(.fileNoSuchFile)
    }
}
