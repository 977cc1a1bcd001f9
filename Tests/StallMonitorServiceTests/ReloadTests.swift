import Configuration
import Foundation
import Logging
import StallMonitor
import Synchronization
import TestSupport
import Testing

@testable import StallMonitorService

@Suite("Configuration changes while the service runs", .serialized, .captureSignal, .timeLimit(.minutes(5)))
struct ReloadTests {
    private let directory = FileManager.default.temporaryDirectory.appending(path: "stall-monitor-reload-\(UUID())")
    private let lines = LogLines()
    private var file: URL { directory.appending(path: "stall-monitor.yaml") }

    private var logger: Logger { Logger(label: "reload") { [lines] _ in MemoryLog(lines: lines) } }

    init() throws { try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true) }

    /// Replaces the file atomically, as an editor or a deployment does, with a new modification time: the kernel's time of files
    /// advances in steps, and only a change of it is seen.
    private func write(_ values: String) throws {
        let text = "stallMonitor:\n  directory: \(directory.path)/reports\n\(values)"
        let before = try? modificationDate()
        repeat { try Data(text.utf8).write(to: file, options: .atomic) } while try modificationDate() == before
    }

    private func modificationDate() throws -> Date? {
        try FileManager.default.attributesOfItem(atPath: file.path)[.modificationDate] as? Date
    }

    /// The log lines about the configuration.
    private var configurationLines: [LogLines.Line] {
        lines.all.filter { $0.metadata["keys"] != nil || $0.text.contains("configuration") }
    }

    /// Waits for such a line after this many.
    private func line(after count: Int) async throws -> LogLines.Line? {
        let deadline = ContinuousClock.now + .seconds(60)
        while configurationLines.count <= count, ContinuousClock.now < deadline {
            try await Task.sleep(for: .milliseconds(5))
        }
        return configurationLines.dropFirst(count).first
    }

    private func keys(_ line: LogLines.Line?) -> String? { line?.metadata["keys"].map { "\($0)" } }

    /// Runs the service during `work`.
    ///
    /// - Parameter customize: Called after each reading.
    private func running(
        customize: @escaping @Sendable (inout StallMonitor.Configuration) -> Void = { _ in },
        _ work: (StallMonitorService) async throws -> Void
    ) async throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        let service = try await StallMonitorService(
            file: file.path,
            checkedEvery: .milliseconds(10),
            watching: .loops([]),
            logger: logger,
            customize: customize
        )
        let run = Task { await service.run() }
        do { try await work(service) } catch {
            run.cancel()
            throw error
        }
        run.cancel()
        await run.value
        #expect(!service.monitor.isRunning)
    }

    @Test("Thresholds, limits and the log's level change without a restart; a log line names them")
    func change() async throws {
        try write("  ticks: 3\n")
        try await running { service in
            try write("  ticks: 8\n  logLevel: error\n  limits:\n    reports: 7\n")
            let line = try await line(after: 0)
            #expect(line?.text == "stall monitor has a new configuration" && line?.level == .notice)
            #expect(keys(line) == "ticks, limits, logLevel")
            #expect(service.level.value == .error)
            // Nothing is left to change.
            #expect(service.monitor.reconfigure(try await StallMonitor.Configuration.load(file: file.path)).isEmpty)
        }
    }

    @Test("A misspelt key is logged once, with the key that may be meant; a group without keys is not misspelt")
    func misspelt() async throws {
        try write("  tickMiliseconds: 20\n  limits:\n")
        try await running { _ in
            let line = configurationLines.first
            #expect(line?.text == "stall monitor ignores unknown keys of its configuration" && line?.level == .warning)
            #expect(keys(line) == "tickMiliseconds (did you mean tickMilliseconds?)")
            try write("  tickMiliseconds: 20\n  ticks: 9\n  limits:\n    raports: 5\n")
            // The service reads its values once more as it begins, and looks for keys after that: maybe in the new file already.
            let later = [keys(try await self.line(after: 1)), keys(try await self.line(after: 2))]
            #expect(Set(later) == ["ticks", "limits.raports (did you mean limits.reports?)"])
        }
    }

    @Test("A misspelt section is found, because none of its keys has an effect; other sections are the server's")
    func misspeltSection() throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        let text = "stall-monitor:\n  ticks: 3\nstall:\n  tick: 3\nstallMonitor:\n  ticks: 3\n"
        try Data(text.utf8).write(to: file)
        let keys = UnknownKeys(file: file.path, environment: [:]).findNew()
        #expect(keys == ["stall-monitor (did you mean stallMonitor?)"])
    }

    @Test("A misspelt environment variable is found; those of keys, of the command and of Kubernetes are not")
    func misspeltVariable() throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        let known = ConfigurationOption.all.map { "STALL_MONITOR_" + UnknownKeys.variable(of: $0.key) }
        #expect(known.contains("STALL_MONITOR_COST_PROCESSOR_PERCENT"))
        let others = ["STALL_MONITOR_TOKEN", "STALL_MONITOR_TOKEN_FILE", "STALL_MONITOR_CONFIG", "TICK_MILISECONDS"]
        let kubernetes = [
            "SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR", "PORT_80_TCP_PROTO",
        ]
        .map { "STALL_MONITOR_" + $0 }
        let names = known + others + kubernetes + ["STALL_MONITOR_TICK_MILISECONDS"]
        let keys = UnknownKeys(file: file.path, environment: Dictionary(uniqueKeysWithValues: names.map { ($0, "1") }))
        #expect(keys.findNew() == ["STALL_MONITOR_TICK_MILISECONDS (did you mean STALL_MONITOR_TICK_MILLISECONDS?)"])
        #expect(keys.findNew().isEmpty)
    }

    @Test("Each key is read from the variable whose name is known", arguments: ConfigurationOption.all.map(\.key))
    func variable(of key: String) {
        let provider = EnvironmentVariablesProvider(environmentVariables: [
            "STALL_MONITOR_" + UnknownKeys.variable(of: key): "7"
        ])
        let config = ConfigReader(provider: provider).scoped(to: "stallMonitor")
        #expect(config.string(forKey: ConfigKey(key.split(separator: ".").map(String.init))) == "7")
    }

    @Test("A file that does not exist is logged with its path: usually the path is misspelt")
    func missing() async throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        _ = try await StallMonitorService(file: file.path, logger: logger, customize: { $0.enabled = false })
        let line = configurationLines.first
        #expect(line?.text == "stall monitor's configuration file does not exist yet" && line?.level == .notice)
        #expect(line?.metadata["file"] == "\(file.path)")
    }

    @Test("A setting that cannot change is named, with what to do")
    func restart() async throws {
        try write("  captureSignal: 27\n")
        try await running { service in
            try write("  captureSignal: 34\n  health:\n    port: 0\n")
            let line = try await line(after: 0)
            #expect(line?.text == "restart the server for the stall monitor to take these settings")
            #expect(line?.level == .warning && keys(line) == "captureSignal, health")
            #expect(service.monitor.healthPort == nil)
        }
    }

    @Test("A monitor that the file switches on needs a restart, too")
    func switchedOn() async throws {
        try write("  enabled: false\n")
        try await running { _ in
            try write("  enabled: true\n  ticks: 8\n")
            let line = try await line(after: 0)
            #expect(line?.text == "restart the server for the stall monitor to take these settings")
            #expect(line?.level == .warning && keys(line) == "enabled")
        }
    }

    @Test("A file that is no YAML any more is logged once; the next readable one is applied")
    func unreadable() async throws {
        try write("  ticks: 3\n")
        try await running { service in
            try write("  ticks: [8\n")
            let line = try await line(after: 0)
            #expect(line?.text == "stall monitor keeps its configuration" && line?.level == .warning)
            let error = line?.metadata["error"].map { "\($0)" }
            #expect(error?.hasPrefix("\(file.path) cannot be used as a configuration file: ") == true)
            try write("  ticks: 9\n")
            #expect(keys(try await self.line(after: 1)) == "ticks")
        }
    }

    @Test("A file that becomes unreadable again, after it was as before in between, is logged again")
    func unreadableAgain() async throws {
        try write("  ticks: 3\n")
        let (kept, next) = (directory.appending(path: "kept"), directory.appending(path: "next"))
        try FileManager.default.linkItem(at: file, to: kept)
        try await running { _ in
            let deadline = ContinuousClock.now + .seconds(60)
            // Nothing is logged of the file that is as before, so it is not known when it was looked at.
            while configurationLines.count < 2, ContinuousClock.now < deadline {
                try write("  ticks: [8\n")
                try await Task.sleep(for: .milliseconds(50))
                try FileManager.default.linkItem(at: kept, to: next)
                try #require(unsafe rename(next.path, file.path) == 0)
                try await Task.sleep(for: .milliseconds(50))
            }
            #expect(configurationLines.count >= 2)
            #expect(configurationLines.allSatisfy { $0.text == "stall monitor keeps its configuration" })
        }
    }

    @Test(
        "A file that becomes unreadable while the one before it is applied is logged once",
        .enabled(if: ProcessInfo.processInfo.activeProcessorCount > 1, "a task waits here for another one")
    )
    func unreadableMeanwhile() async throws {
        try write("  ticks: 3\n")
        let readings = Atomic(0)
        let breakFile: @Sendable (inout StallMonitor.Configuration) -> Void = { _ in
            // The first reading is the initializer's, the second one that of the running service.
            guard readings.wrappingAdd(1, ordering: .relaxed).newValue == 2 else { return }
            try? write("  ticks: [8\n")
            waitUntil { !configurationLines.isEmpty }
        }
        try await running(customize: breakFile) { _ in
            #expect(try await line(after: 0)?.text == "stall monitor keeps its configuration")
            // The file is looked at several times meanwhile. If none of these looks came, one more line would not be noticed.
            try await Task.sleep(for: .milliseconds(200))
            try write("  ticks: 9\n")
            #expect(keys(try await self.line(after: 1)) == "ticks")
        }
    }

    @Test("A reading that fails because of a file that has been replaced meanwhile is repeated")
    func replacedMeanwhile() async throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        try write("  ticks: 3\n")
        let options = ConfigReader(provider: InMemoryProvider(values: ["filePath": .init(stringLiteral: file.path)]))
        let provider = try await ReloadingFileProvider<YAMLSnapshot>(config: options)
        let reporter = ChangingReporter(after: "stallMonitor.enabled") { try? write("  ticks: 9\n") }
        let config = ConfigReader(provider: provider, accessReporter: reporter).scoped(to: "stallMonitor")
        let source = ConfigurationSource(config: config, provider: provider, customize: { _ in })
        try write("  ticks: [8\n")
        #expect(try await source.readPresent().0.rule.ticks == 9)
    }

    @Test("A configuration with a wrong value is refused as a whole, and once; the next valid one is applied")
    func refusal() async throws {
        try write("  ticks: 3\n")
        try await running { service in
            try write("  ticks: 8\n  logLevel: loud\n")
            let line = try await line(after: 0)
            #expect(line?.text == "stall monitor keeps its configuration" && service.level.value == .info)
            #expect(
                line?.metadata["error"].map { "\($0)" }?.contains("logLevel is loud; set it to trace, debug") == true
            )
            try write("  ticks: 9\n")
            #expect(keys(try await self.line(after: 1)) == "ticks")
        }
    }

    @Test("The service ends while a reading of its file does not return, as on a disk that does not answer")
    func deadDisk() async throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        try write("  ticks: 3\n")
        let readings = Atomic(0)
        let disk = DispatchSemaphore(value: 0)
        let customize: @Sendable (inout StallMonitor.Configuration) -> Void = { _ in
            // The first reading is the initializer's, the second one that of the running service.
            if readings.wrappingAdd(1, ordering: .relaxed).newValue == 2 { disk.wait() }
        }
        let service = try await StallMonitorService(
            file: file.path,
            watching: .loops([]),
            logger: logger,
            customize: customize
        )
        let run = Task { await service.run() }
        let deadline = ContinuousClock.now + .seconds(60)
        while readings.load(ordering: .relaxed) < 2 { try await Task.sleep(for: .milliseconds(5)) }
        run.cancel()
        while service.monitor.isRunning, ContinuousClock.now < deadline { try await Task.sleep(for: .milliseconds(5)) }
        #expect(!service.monitor.isRunning)
        disk.signal()
        await run.value
    }

    @Test("The service's file is read outside the task pool, also at the start: a dead disk holds no worker")
    func outsideThePool() async throws {
        try write("  ticks: 3\n")
        let readings = Atomic(0)
        let outside = Atomic(0)
        let count: @Sendable (inout StallMonitor.Configuration) -> Void = { _ in
            let isOutside = unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor != nil }
            outside.wrappingAdd(isOutside ? 1 : 0, ordering: .sequentiallyConsistent)
            readings.wrappingAdd(1, ordering: .sequentiallyConsistent)
        }
        try await running(customize: count) { _ in
            try write("  ticks: 9\n")
            #expect(keys(try await line(after: 0)) == "ticks")
        }
        // The first reading is the initializer's.
        let all = readings.load(ordering: .sequentiallyConsistent)
        #expect(all > 1 && outside.load(ordering: .sequentiallyConsistent) == all)
    }
}
