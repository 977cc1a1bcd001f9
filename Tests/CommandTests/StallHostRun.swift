import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

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
            let comm = try String(contentsOfFile: "\(tasks)/\(entry)/comm", encoding: .utf8)
            if comm.trimmingCharacters(in: .whitespacesAndNewlines) == name { return try #require(Int32(entry)) }
        }
        throw CocoaError(.fileNoSuchFile)
    }
}
