import Foundation
import Glibc
import StallReading
import StallReports
import Synchronization
import TestSupport

@testable import StallDiagnosis
@testable import StallMonitor

/// A `death-host`: a server whose loop stalls for good and which dies when ordered. It ends with this value at the
/// latest.
final class DyingProcess: Sendable {
    let directory: String
    private let process: ProcessBox
    private let ending = Ending()
    private let input = Pipe()
    private let lines: AsyncStream<String>

    static let executable = URL.built("death-host")

    /// - Parameter cgroup: where it starts; in this process's group by default.
    ///   - tellsCrashes: whether the runtime prints its own account of a crash, which takes seconds.
    init(_ death: String, in directory: String, cgroup: String? = nil, tellsCrashes: Bool = false) throws {
        self.directory = directory
        let process = Process()
        let start = cgroup.map { "echo $$ > \($0)/cgroup.procs && " } ?? ""
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = ["-c", start + #"exec "$0" "$@""#, Self.executable.path, directory, death]
        let backtrace = "enable=\(tellsCrashes ? "yes" : "no"),color=no"
        process.environment = ProcessInfo.processInfo.environment.merging(["SWIFT_BACKTRACE": backtrace]) { $1 }
        let output = Pipe()
        (process.standardInput, process.standardOutput, process.standardError) = (input, output, output)
        try process.run()
        self.process = ProcessBox(pid: process.processIdentifier)
        lines = AsyncStream { [ending] continuation in
            Thread {
                var rest = Data()
                while case let data = output.fileHandleForReading.availableData, !data.isEmpty {
                    rest += data
                    while let end = rest.firstIndex(of: 10) {
                        continuation.yield(String(decoding: rest[..<end], as: UTF8.self))
                        rest = Data(rest[(end + 1)...])
                    }
                }
                process.waitUntilExit()
                let signal = process.terminationReason == .uncaughtSignal ? process.terminationStatus : 0
                ending.signal.withLock { $0 = signal }
                continuation.finish()
            }.start()
        }
    }

    deinit { kill(SIGKILL) }

    var pid: Int32 { process.pid }

    /// Waits until it has a child with this name, or has ended.
    func awaitChild(_ name: String) {
        while stateOfMain != nil, !children.contains(where: { readSmallFile("/proc/\($0)/comm") == name + "\n" }) {
            sched_yield()
        }
    }

    private var stateOfMain: Character? {
        readSmallFile("/proc/\(pid)/stat")?.split(separator: ")").last?.dropFirst().first.flatMap {
            $0 == "Z" ? nil : $0
        }
    }

    private var children: [Substring] {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
        return tasks.flatMap { (readSmallFile("/proc/\(pid)/task/\($0)/children") ?? "").split(separator: " ") }
    }

    func kill(_ signal: Int32) { _ = Glibc.kill(pid, signal) }

    /// Lets it continue where it waits for that.
    func proceed() throws { try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8)) }

    /// Waits for a line with this beginning; nil if the process ends first. Returns the line's second word.
    func word(after first: String) async -> String? {
        for await line in lines {
            let words = line.split(separator: " ")
            if words.first.map(String.init) == first { return words.dropFirst().first.map(String.init) ?? "" }
        }
        return nil
    }

    /// Waits for its end. Returns the signal that ended it, or 0.
    @discardableResult
    func end() async -> Int32 {
        for await _ in lines {}
        return ending.signal.withLock(\.self)
    }

    var reader: ReportReader { ReportReader(path: directory) }
}

private final class Ending: Sendable { let signal = Mutex<Int32>(0) }
private struct ProcessBox: Sendable { let pid: Int32 }
