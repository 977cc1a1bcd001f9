import Foundation
import StackCapture
import Symbolication

/// A running `sample-target`. It ends with this process at the latest.
final class TargetProcess {
    private let process = Process()
    private let output = Pipe()
    private let input = Pipe()
    /// What stood behind READY: another process's number, for some.
    let announced: String

    static let executable = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        .appending(path: "sample-target")

    /// Starts it and waits until it is ready.
    init(_ arguments: String..., executable: URL = TargetProcess.executable) throws {
        process.executableURL = executable
        process.arguments = arguments
        process.standardOutput = output
        process.standardInput = input
        try process.run()
        announced = Self.line(of: output.fileHandleForReading).split(separator: " ").dropFirst().joined()
    }

    var processID: Int32 { process.processIdentifier }

    func send(_ signal: Int32) { kill(process.processIdentifier, signal) }

    /// Lets it go on where it waits for that.
    func proceed() throws { try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8)) }

    /// - Returns: what it printed at its end.
    func finish() -> String {
        send(SIGTERM)
        return rest()
    }

    /// Waits for its end without asking for it.
    func rest() -> String {
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return text.trimmingCharacters(in: .newlines)
    }

    /// The kernel's letter.
    var state: Character? { ProcessThread(threadID: processID, ofProcess: processID).state }

    deinit {
        if process.isRunning { kill(process.processIdentifier, SIGKILL) }
    }

    private static func line(of file: FileHandle) -> String {
        var line = ""
        while !line.hasSuffix("\n"), let byte = try? file.read(upToCount: 1), !byte.isEmpty {
            line += String(decoding: byte, as: UTF8.self)
        }
        return line.trimmingCharacters(in: .newlines)
    }
}

extension ProcessSampler {
    /// The function of each frame, innermost first.
    func names(of stack: CapturedStack) -> [String] {
        Symbolicator(processID: processID).resolve(
            stack.frames.enumerated().map { ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0) }
        ).frames.map { $0.symbol ?? "?" }
    }

    func capture() -> Result<CapturedStack, CaptureError> { capture(threadID: processID) }
}

extension [UInt64] {
    /// Microseconds at 50, 90 and 99 percent.
    var percentiles: String {
        let sorted = sorted()
        guard !sorted.isEmpty else { return "none" }
        return [50, 90, 99].map { "\(Double(sorted[(sorted.count - 1) * $0 / 100] / 100) / 10)" }.joined(separator: "/")
    }
}
