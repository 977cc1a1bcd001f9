import Dispatch
package import Foundation

/// A running `sample-target`. It ends with this process at the latest.
package final class TargetProcess {
    private let process = Process()
    private let output = Pipe()
    private let input = Pipe()
    /// The text after READY: another process's id for some programs.
    package let announced: String

    package static let executable = URL.built("sample-target")

    /// Starts it and waits until it is ready.
    package convenience init(_ arguments: String..., executable: URL = TargetProcess.executable) throws {
        try self.init(arguments: arguments, executable: executable)
    }

    /// - Parameter isIdle: Whether it runs only if nothing else needs its CPU.
    package convenience init(_ arguments: String..., onProcessor processor: Int, isIdle: Bool = false) throws {
        let idle = isIdle ? ["/usr/bin/chrt", "--idle", "0"] : []
        try self.init(
            arguments: ["-c", "\(processor)"] + idle + [Self.executable.path] + arguments,
            executable: URL(filePath: "/usr/bin/taskset")
        )
    }

    package init(arguments: [String], executable: URL) throws {
        process.executableURL = executable
        process.arguments = arguments
        process.standardOutput = output
        process.standardInput = input
        try process.run()
        let (file, identifier) = (output.fileHandleForReading, process.processIdentifier)
        announced = Self.withinThreeMinutes(identifier) {
            Self.line(of: file).split(separator: " ").dropFirst().joined()
        }
        // It announces itself when its other threads rest, just before its first one does.
        if arguments.contains("threads") { wait { $0.isInCall } }
    }

    package var processID: Int32 { process.processIdentifier }

    package func send(_ signal: Int32) { kill(process.processIdentifier, signal) }

    /// Lets it continue where it waits for that.
    package func proceed() throws { try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8)) }

    /// - Returns: What it printed at its end.
    package func finish() -> String {
        send(SIGTERM)
        return rest()
    }

    /// Waits for its end without requesting it.
    package func rest() -> String {
        Self.withinThreeMinutes(process.processIdentifier) {
            let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            process.waitUntilExit()
            return text.trimmingCharacters(in: .newlines)
        }
    }

    /// Waits until a condition holds, or the process has ended. After three minutes it returns anyway: the test fails by what it expects then,
    /// instead of waiting without end.
    package func wait(until condition: (TargetProcess) -> Bool) {
        let end = ContinuousClock.now + .seconds(180)
        while !condition(self), state != nil, ContinuousClock.now < end { usleep(1000) }
    }

    /// Waits for output of a process. If that takes three minutes, the process is killed: its test fails instead of waiting without
    /// end.
    private static func withinThreeMinutes(_ process: Int32, _ wait: () -> String) -> String {
        let end = DispatchWorkItem { kill(process, SIGKILL) }
        DispatchQueue.global().asyncAfter(deadline: .now() + .seconds(180), execute: end)
        defer { end.cancel() }
        return wait()
    }

    /// The kernel's letter: `R`, `S`, `T`, `t` … Nil if it has ended.
    package var state: Character? { statusField("State", of: processID).first }

    /// Whether its main thread waits in a system call (proc(5), `/proc/PID/syscall`); a thread that waits for a page of a file
    /// does not.
    package var isInCall: Bool {
        let text = procText("/proc/\(processID)/syscall")
        return text.split(separator: " ").first.flatMap { Int($0) }.map { $0 >= 0 } ?? false
    }

    /// The process that traces it, `0` for none.
    package var tracer: String { statusField("TracerPid", of: processID) }

    deinit { process.killIfRunning() }

    private static func line(of file: FileHandle) -> String {
        var line = ""
        while !line.hasSuffix("\n"), let byte = try? file.read(upToCount: 1), !byte.isEmpty {
            line += String(decoding: byte, as: UTF8.self)
        }
        return line.trimmingCharacters(in: .newlines)
    }
}
