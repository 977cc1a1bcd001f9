import Foundation
import StallReports
import TestSupport
import Testing

// Where the output goes: a terminal, a file, a pipe, nowhere.

extension ListAndShowTests {
    @Test("on a terminal: colours and a fitted width; no colours with NO_COLOR")
    func terminal() throws {
        try fixture.store.write(Sample.report())
        func onTerminal(_ environment: String) throws -> String {
            let script = Process()
            script.executableURL = URL(filePath: "/usr/bin/script")
            let command = "stty cols 111; \(environment) '\(CommandRun.executable.path)' list '\(fixture.path)'"
            script.arguments = ["-qec", command, "/dev/null"]
            let output = Pipe()
            (script.standardOutput, script.standardInput) = (output, FileHandle.nullDevice)
            try script.run()
            let data = try output.fileHandleForReading.readToEnd() ?? Data()
            script.waitUntilExit()
            return String(decoding: data, as: UTF8.self).replacing("\r\n", with: "\n")
        }
        let coloured = try onTerminal("env -u NO_COLOR TERM=xterm")
        #expect(coloured.contains("\u{1B}[32mrecovered\u{1B}[0m"))
        let plain = try onTerminal("NO_COLOR=1")
        #expect(!plain.commandsTerminal)
        func lengths(_ lines: String) -> [Int] { lines.split(separator: "\n").map(\.count) }
        #expect(lengths(plain).allSatisfy { $0 <= 111 })
        #expect(try lengths(CommandRun("list", fixture.path).output).contains { $0 > 111 })
    }

    @Test("an output that cannot be written is an error")
    func fullOutput() throws {
        try fixture.store.write(Sample.report())
        let process = CommandRun.process(["list", fixture.path])
        process.standardOutput = FileHandle(forWritingAtPath: "/dev/full")
        let errors = Pipe()
        process.standardError = errors
        try process.runWithSignals()
        process.waitUntilExit()
        #expect(process.terminationStatus == 1)
        let text = String(decoding: errors.fileHandleForReading.availableData, as: UTF8.self)
        #expect(text.contains("cannot write to standard output: the disk is full"))
    }

    @Test("an output that the parent has closed is an error; no file that is opened later takes its place")
    func closedOutput() throws {
        try fixture.store.write(Sample.report())
        let command = CommandRun.executable.path
        for arguments in ["list '\(fixture.path)'", "gate '\(fixture.path)'", "sample \(getpid()) --all"] {
            let run = try CommandRun(tool: "/bin/sh", ["-c", "exec '\(command)' \(arguments) >&-"])
            #expect(run.status == 1, "\(arguments)")
            #expect(run.errors.contains("Error: cannot write to standard output: it is closed; "), "\(run.errors)")
        }
    }

    @Test("a full non-blocking pipe is waited for: all output arrives, however slow its reader")
    func nonBlockingOutput() throws {
        var report = Sample.report(id: .make())
        report.metadata = ["long": String(repeating: "x", count: 1 << 20)]
        try fixture.store.write(report)
        let process = CommandRun.process(["list", fixture.path, "--format", "json"])
        let output = Pipe()
        let end = output.fileHandleForWriting.fileDescriptor
        try #require(fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK) == 0)
        process.standardOutput = output
        try process.runWithSignals()
        try output.fileHandleForWriting.close()
        // Read only when nothing more arrives, so that the command has met a full pipe. The kernel decides how much
        // fits.
        var (waiting, before, unchanged): (Int32, Int32, Int) = (0, 0, 0)
        while unchanged < 100, process.isRunning {
            usleep(1000)
            try #require(unsafe ioctl(output.fileHandleForReading.fileDescriptor, UInt(FIONREAD), &waiting) == 0)
            unchanged = waiting > 0 && waiting == before ? unchanged + 1 : 0
            before = waiting
        }
        let data = try output.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
        let array = try JSONSerialization.jsonObject(with: data) as? [[String: Any]]
        #expect(array?.count == 1)
    }
}
