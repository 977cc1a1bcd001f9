import Configuration
import Dispatch
import Logging
import ServiceLifecycle
import StallMonitor

/// Where a service reads its configuration, at the start and after each change.
struct ConfigurationSource: Sendable {
    let config: ConfigReader
    /// A provider that this service must run, because no service group does.
    var provider: (any ConfigProvider & Service)?
    /// The time between two looks of that provider at its file.
    var pause = Duration.seconds(15)
    /// The error that says what is wrong with that provider's file, given the provider's own.
    var explaining: @Sendable (any Error) -> any Error = { $0 }
    let customize: @Sendable (inout StallMonitor.Configuration) -> Void
    /// Keys that the monitor does not know, and that were not found before. None if the source cannot list its keys.
    var findNewUnknownKeys: @Sendable () -> [String] = { [] }

    /// Why that provider's file cannot be read.
    func fileProblem() async -> (any Error)? {
        // This looks at the file first. No value has this key: it has the scope only.
        do { _ = try await provider?.fetchValue(forKey: ["stallMonitor"], type: .string) } catch {
            return explaining(error)
        }
        return nil
    }

    /// Reads. If that fails although the file can be read, reads once more: the file may have been replaced in between, and then what was
    /// wrong with the former one is over. A value that is not allowed fails again.
    func readPresent() async throws -> (StallMonitor.Configuration, Logger.Level) {
        do { return try await read() } catch {
            if let problem = await fileProblem() { throw problem }
        }
        do { return try await read() } catch { throw await fileProblem() ?? error }
    }

    func read() async throws -> (StallMonitor.Configuration, Logger.Level) {
        let draft = try await ConfigurationDraft(config)
        var configuration = try draft.configuration()
        let level = try draft.level() ?? .info
        customize(&configuration)
        return (configuration, level)
    }
}

/// Threads outside the task pool, for tasks that read the configuration's file: on a disk that does not answer they would hold as many workers of
/// the pool for as long as that lasts. That is the whole pool of a server with two processors.
final class FileReaders: TaskExecutor {
    static let shared = FileReaders()

    private let queue = DispatchQueue(label: "stall-monitor.configuration", attributes: .concurrent)

    /// In a task of its own, so that the caller's goes on in the pool.
    static func run<Value: Sendable>(_ work: @escaping @Sendable () async throws -> Value) async throws -> Value {
        try await Task(executorPreference: shared, operation: work).value
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { unsafe job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
