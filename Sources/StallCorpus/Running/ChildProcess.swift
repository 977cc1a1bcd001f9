import Dispatch
import Glibc
import StallMonitor
import StallReports
import Synchronization

/// The process in which a scenario is played, as its runner sees it.
/// It has a separate process group, and its output goes to a file.
struct ChildProcess {
    enum End: Hashable, Sendable {
        case exited(Int32)
        case signalled(Int32)
        /// Killed, because its time limit was exceeded.
        case overdue
        case notStarted(Int32)
    }

    /// Runs the process until it ends or the deadline passes. All processes that it started are ended with it.
    static func run(
        _ command: [String],
        adding variables: [String: String],
        output: String,
        within limit: Duration
    ) -> End {
        let (error, process) = spawn(command, variables, output)
        guard error == 0 else { return .notStarted(error) }
        let (box, ended) = (StatusBox(), DispatchSemaphore(value: 0))
        startThread(named: "corpus-waiter") {
            var value: Int32 = 0
            while unsafe waitpid(process, &value, 0) < 0, errno == EINTR {}
            box.status.withLock { $0 = value }
            ended.signal()
        }
        let milliseconds = Int(limit / .milliseconds(1))
        guard ended.wait(timeout: .now() + .milliseconds(milliseconds)) == .success else {
            // The process may be stopped or frozen; SIGKILL ends it anyway.
            kill(-process, SIGKILL)
            ended.wait()
            return .overdue
        }
        kill(-process, SIGKILL)
        return End(status: box.status.withLock { $0 })
    }

    private final class StatusBox: Sendable {
        let status = Mutex<Int32>(0)
    }

    private static func spawn(
        _ command: [String],
        _ variables: [String: String],
        _ output: String
    ) -> (error: Int32, process: pid_t) {
        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe posix_spawnattr_destroy(&attributes) }
        unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP))
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe posix_spawn_file_actions_destroy(&actions) }
        unsafe posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        unsafe posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        unsafe posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO)
        let allVariables = inherited(but: variables) + variables.map { "\($0)=\($1)" }
        var arguments = unsafe command.map { unsafe strdup($0) } + [nil]
        var environment = unsafe allVariables.map { unsafe strdup($0) } + [nil]
        defer {
            for index in unsafe arguments.indices { unsafe free(arguments[index]) }
            for index in unsafe environment.indices { unsafe free(environment[index]) }
        }
        var process: pid_t = 0
        let error = unsafe posix_spawn(&process, command[0], &actions, &attributes, &arguments, &environment)
        return (error, process)
    }

    /// The caller's environment variables, as `name=value`.
    private static func inherited(but others: [String: String]) -> [String] {
        var result: [String] = []
        var next = unsafe environ
        while let entry = unsafe next.pointee {
            let text = unsafe String(cString: entry)
            if others[String(text.prefix { $0 != "=" })] == nil { result.append(text) }
            unsafe next += 1
        }
        return result
    }
}

extension ChildProcess.End {
    /// From the status that waitpid(2) returns.
    fileprivate init(status: Int32) {
        self = status & 0x7f == 0 ? .exited(status >> 8 & 0xff) : .signalled(status & 0x7f)
    }

    /// Why the end counts as a failure. Nil if it does not.
    var problem: String? {
        switch self {
        case .exited(0): nil
        case .exited(let code): "the process exited with \(code)"
        case .signalled(let number): "the process was ended by signal \(number)"
        case .overdue: "the process did not end in time"
        case .notStarted(let error): "the process did not start (errno \(error))"
        }
    }
}

/// The process in which a scenario is played. The scenario's name is passed in the environment: a program with libfaketime loaded
/// does not find its arguments, because that library moves them.
package struct ScenarioProcess: Sendable {
    private let name: String
    private let directory: String

    static let nameVariable = "STALL_CORPUS_SCENARIO"
    static let directoryVariable = "STALL_CORPUS_DIRECTORY"
    static let groupVariable = "STALL_CORPUS_GROUP"

    /// The scenario for which the calling process was started. Nil if it was not started for a scenario.
    package static var requested: ScenarioProcess? {
        guard let name = environment(nameVariable), let directory = environment(directoryVariable) else { return nil }
        return ScenarioProcess(name: name, directory: directory)
    }

    /// Plays it on a separate thread, while the main thread runs its loop. Returns the exit code.
    package func run() async -> Int32 {
        await withCheckedContinuation { continuation in
            startThread(named: "corpus-driver") {
                continuation.resume(returning: play())
            }
        }
    }

    private func play() -> Int32 {
        if let group = Self.environment(Self.groupVariable) { writeFile("\(getpid())", to: group + "/cgroup.procs") }
        if let soak = Soak(named: name) { return soak.play(in: directory) }
        guard let scenario = Scenario.all.first(where: { $0.name == name }) else { return 64 }
        var configuration = StallMonitor.Configuration(
            directory: directory + "/reports",
            repeats: .everyStall,
            service: .init(name: "corpus")
        )
        if scenario.needs == .startupGrace { MonitorSwitches.allowStart(&configuration) }
        let monitor = StallMonitor.start(configuration)
        var receipt: Receipt
        do {
            let stage = try Stage(scenario.place, monitor: monitor, directory: directory)
            stage.rest(.milliseconds(300))
            receipt = try Self.play(scenario, on: stage)
            // The loop goes back to rest, and pending reports are written.
            stage.rest(.milliseconds(300))
        } catch let skipped as SkippedScenario {
            receipt = Receipt(skipped: skipped.reason)
        } catch {
            receipt = Receipt(failure: "\(error)")
        }
        monitor.stop()
        receipt.write(in: directory)
        return 0
    }

    private static func play(_ scenario: Scenario, on stage: Stage) throws -> Receipt {
        try scenario.play(stage)
        return stage.receipt
    }

    private static func environment(_ name: String) -> String? {
        unsafe getenv(name).map { unsafe String(cString: $0) }
    }
}
