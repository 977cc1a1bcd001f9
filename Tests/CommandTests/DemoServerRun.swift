#if Command
    import Foundation
    import FoundationNetworking
    import StallReports
    import Testing

    /// `demo --keep`: a real server under watch, to be stalled from outside.
    final class DemoServerRun {
        let pid: Int32
        let directory: String
        private let command: RunningCommand
        private let address: String

        init(directory: String) throws {
            self.directory = directory
            command = try RunningCommand("demo", "--keep", "--reports", directory)
            pid = command.pid
            let line = try #require(try command.line())
            address = try #require(line.split(separator: " ").first { $0.hasPrefix("http://") }).trimmingCharacters(
                in: [","]
            )
        }

        var port: String { String(address.split(separator: ":").last ?? "") }

        /// Asks for something, and does not wait for the answer.
        func request(_ path: String) throws {
            let url = try #require(URL(string: "\(address)/\(path)"))
            URLSession.shared.dataTask(with: url).resume()
        }

        /// Waits until a report is told for which the condition holds, in 30 s.
        func report(where condition: (StallReport) -> Bool) throws -> StallReport {
            var follower = try ReportFollower(path: directory)
            let deadline = ContinuousClock.now + .seconds(30)
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
#endif
