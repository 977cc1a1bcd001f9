#if Command
    import Foundation

    /// A run of the built command that goes on, read line by line as it writes.
    final class RunningCommand {
        private let process: Process
        private let output = Pipe()
        private let errors = Pipe()
        private var pending: [ObjectIdentifier: Data] = [:]

        init(_ arguments: String..., environment: [String: String] = [:]) throws {
            process = CommandRun.process(arguments, environment: environment)
            (process.standardOutput, process.standardError) = (output, errors)
            try process.runWithSignals()
        }

        /// The next line of standard output; waits for it. Nil at the end.
        func line() throws -> String? { try line(of: output) }

        /// The next line of standard error.
        func errorLine() throws -> String? { try line(of: errors) }

        var pid: Int32 { process.processIdentifier }

        func send(_ signal: Int32) { kill(process.processIdentifier, signal) }

        func closeOutput() throws { try output.fileHandleForReading.close() }

        func status() -> Int32 {
            process.waitUntilExit()
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
                let more = pipe.fileHandleForReading.availableData
                if more.isEmpty { return nil }
                pending[key] = data + more
            }
        }

        deinit {
            if process.isRunning { process.terminate() }
        }
    }
#endif
