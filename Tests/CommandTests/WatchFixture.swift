import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

@testable import ProcessWatch

/// An event loop that stalls when ordered: `sample-target loop`.
final class LoopTarget {
    /// A stall as the target itself measured it.
    struct Done {
        var name: String
        var nanoseconds: Int64
        /// Of a blocking call: whether it returned as it does undisturbed.
        var isWhole: Bool?
    }

    private let command: RunningCommand
    /// The process that watches it, if its lateness is to count, too.
    var watcher: Int32?

    /// - Parameter mode: `beside` for a loop on a second thread.
    init(_ mode: String = "loop", executable: URL = TargetProcess.executable) throws {
        command = try RunningCommand(mode, executable: executable)
        #expect(try command.line() == "READY")
    }

    /// SIGTERM does not end a loop, and its input has an end only when no later child has a copy of it.
    deinit { if command.isRunning { command.send(SIGKILL) } }

    var pid: Int32 { command.pid }

    /// Without waiting for an answer.
    func tell(_ order: String) throws { try command.send(order + "\n") }

    func answer() throws -> [String] {
        try #require(try command.line(), "the target has ended").split(separator: " ").map(String.init)
    }

    /// Orders a stall and waits for its end. Notes as lateness how long the target had no CPU meanwhile, because where it stood then is
    /// not where the order says, and how long its watcher had none: a stall may be over before that looks.
    func stall(_ order: String) throws -> Done {
        let before = (timeWithoutProcessor(of: pid), watcherDelay)
        try tell(order)
        let words = try answer()
        LatenessWitness.note(timeWithoutProcessor(of: pid) - before.0)
        LatenessWitness.note(watcherDelay - before.1)
        let (begin, end) = (try #require(Int64(words[2])), try #require(Int64(words[3])))
        return Done(name: words[1], nanoseconds: end - begin, isWhole: words.count > 4 ? words[4] == "WHOLE" : nil)
    }

    private var watcherDelay: Duration { watcher.map(timeWithoutProcessor(ofThreadsOf:)) ?? .zero }

    /// Turns so far, and calls that returned early.
    func counts() throws -> (turns: Int, cut: Int) {
        try tell("counts")
        let words = try answer()
        return (try #require(Int(words[1])), try #require(Int(words[2])))
    }

    func send(_ signal: Int32) { command.send(signal) }

    /// Waits until a thread with this name waits in a system call: proc(5), `/proc/PID/task/TID/syscall`.
    func waitForCall(ofThread name: String) {
        let tasks = "/proc/\(pid)/task"
        waitUntil {
            let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
            return threads.contains { thread in
                procText("\(tasks)/\(thread)/comm") == "\(name)\n"
                    && procText("\(tasks)/\(thread)/syscall").first?.isNumber == true
            }
        }
    }
}

/// `stall-monitor watch`, while it runs.
final class WatchRunning {
    private let command: RunningCommand
    let directory: String
    private(set) var notes: [String] = []

    init(_ arguments: [String], directory: String, executable: URL = CommandRun.executable) throws {
        self.directory = directory
        command = try RunningCommand(
            arguments: ["watch", "--reports", directory] + arguments,
            executable: executable
        )
    }

    var pid: Int32 { command.pid }

    /// Waits until it has printed a line, and counts it.
    func waitForNote(_ text: String, count: Int = 1) throws {
        while notes.count(where: { $0.contains(text) }) < count {
            notes.append(try #require(try command.errorLine(), "it has ended: \(notes)"))
        }
    }

    func waitForLoops(_ count: Int) throws { try waitForNote("found a loop", count: count) }

    func send(_ signal: Int32) { command.send(signal) }
    func send(_ text: String) throws { try command.send(text) }
    func line() throws -> String? { try command.line() }

    /// Waits until its standard error has no other end any more, and reads the last notes.
    func readNotes() throws {
        while let line = try command.errorLine() { notes.append(line) }
    }

    /// Waits for its end. Then all notes are available.
    func status() throws -> Int32 {
        try readNotes()
        return command.status()
    }

    /// Ends it and reads the reports that it wrote.
    func finish() throws -> [StallReport] {
        send(SIGINT)
        #expect(try status() == 130)
        return try reports()
    }

    func runs() throws -> [RunRecord] { try ReportReader(path: directory).contents().runs }

    func reports() throws -> [StallReport] {
        try ReportReader(path: directory).contents().reports.sorted { $0.detectedAt < $1.detectedAt }
    }
}

extension Trait where Self == ConditionTrait {
    /// The test needs hardware breakpoints: perf_event_open(2).
    static var needsBreakpoints: Self {
        .enabled(if: BreakpointSupply().isThere, "this machine, or its settings, has no hardware breakpoints for us")
    }
}

/// The Python versions on this machine.
enum Python {
    static let asyncio = ["/usr/bin/python3", "/usr/local/bin/python3"].first {
        FileManager.default.isExecutableFile(atPath: $0)
    }

    static let program = """
        import asyncio, sys, time
        def stall(line):
            kind, milliseconds = line.split()
            end = time.monotonic() + int(milliseconds) / 1000
            if kind == "sleep": time.sleep(int(milliseconds) / 1000)
            while time.monotonic() < end: sum(range(200))
            print("DID", kind, flush=True)
        def read():
            line = sys.stdin.readline()
            if not line: sys.exit(0)
            stall(line)
        async def main():
            asyncio.get_running_loop().add_reader(sys.stdin, read)
            print("READY", flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
        """
}

/// A control group for one process, which can be frozen.
struct Freezer {
    /// Where groups that can be frozen can be made, and the file that freezes one: cgroups(7).
    private static let kinds = [
        (parent: "/sys/fs/cgroup/freezer", file: "freezer.state", words: ("FROZEN", "THAWED")),
        (parent: "/sys/fs/cgroup/unified", file: "cgroup.freeze", words: ("1", "0")),
        (parent: "/sys/fs/cgroup", file: "cgroup.freeze", words: ("1", "0")),
    ]

    private static let kind = kinds.first { kind in
        let path = "\(kind.parent)/stall-monitor-trial-\(getpid())"
        guard unsafe mkdir(path, 0o755) == 0 else { return false }
        defer { unsafe rmdir(path) }
        return unsafe access("\(path)/\(kind.file)", W_OK) == 0 && access("\(path)/cgroup.procs", W_OK) == 0
    }

    static var isThere: Bool { kind != nil }

    private let kind: (parent: String, file: String, words: (String, String))
    private let path: String

    /// Moves the process there.
    init(of process: Int32) throws {
        kind = try #require(Self.kind)
        path = "\(kind.parent)/stall-monitor-\(UUID())"
        try #require(unsafe mkdir(path, 0o755) == 0)
        try "\(process)".write(toFile: "\(path)/cgroup.procs", atomically: false, encoding: .utf8)
    }

    func freeze(_ isFrozen: Bool) {
        let word = isFrozen ? kind.words.0 : kind.words.1
        #expect(throws: Never.self) {
            try word.write(toFile: "\(path)/\(kind.file)", atomically: false, encoding: .utf8)
        }
    }

    /// Only after the process has ended.
    func remove() {
        for _ in 0..<200 where unsafe rmdir(path) != 0 { usleep(10_000) }
    }
}
