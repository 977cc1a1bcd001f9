import Configuration
import Foundation
import Logging
import StallMonitor
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

    /// Replaces the file atomically, as an editor or a deployment does, with a new modification time.
    private func write(_ values: String) throws {
        let text = "stallMonitor:\n  directory: \(directory.path)/reports\n\(values)"
        try Data(text.utf8).write(to: file, options: .atomic)
    }

    /// The first log line with this text.
    private func line(_ text: String) async throws -> LogLines.Line? {
        let deadline = ContinuousClock.now + .seconds(60)
        while ContinuousClock.now < deadline {
            if let line = lines.all.first(where: { $0.text == text }) { return line }
            try await Task.sleep(for: .milliseconds(5))
        }
        return nil
    }

    /// The keys in the log lines with this text, as soon as all of `wanted` are among them. A reading can take some values before the file
    /// changes and others after that; then a second line has the rest.
    private func keys(in text: String, until wanted: Set<String>) async throws -> Set<String> {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let named = lines.all.filter { $0.text == text }.compactMap { $0.metadata["keys"].map { "\($0)" } }
            let found = Set(named.flatMap { $0.split(separator: ", ").map(String.init) })
            if found.isSuperset(of: wanted) || ContinuousClock.now >= deadline { return found }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    /// Runs the service during `work`.
    private func running(_ work: (StallMonitorService) async throws -> Void) async throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        let service = try await StallMonitorService(
            file: file.path,
            checkedEvery: .milliseconds(10),
            watching: .loops([]),
            logger: logger
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

    private let changed = "stall monitor has a new configuration"
    private let needsRestart = "restart the server for the stall monitor to take these settings"

    @Test("Thresholds, limits and the log's level change without a restart; a log line names them")
    func change() async throws {
        try write("  ticks: 3\n")
        try await running { service in
            try write("  ticks: 8\n  logLevel: error\n  limits:\n    reports: 7\n")
            let wanted: Set = ["ticks", "limits", "logLevel"]
            #expect(try await keys(in: changed, until: wanted) == wanted)
            #expect(try await line(changed)?.level == .notice)
            #expect(service.level.value == .error)
            // Nothing is left to change.
            #expect(service.monitor.reconfigure(try await StallMonitor.Configuration.load(file: file.path)).isEmpty)
        }
    }

    @Test("A setting that cannot change is named, with what to do")
    func restart() async throws {
        try write("  captureSignal: 27\n")
        try await running { service in
            try write("  captureSignal: 34\n  health:\n    port: 0\n")
            let wanted: Set = ["captureSignal", "health"]
            #expect(try await keys(in: needsRestart, until: wanted) == wanted)
            #expect(try await line(needsRestart)?.level == .warning)
            #expect(service.monitor.healthPort == nil)
        }
    }

    @Test("A configuration with a wrong value is refused as a whole, and once; the next valid one is applied")
    func refusal() async throws {
        try write("  ticks: 3\n")
        try await running { service in
            try write("  ticks: 8\n  logLevel: loud\n")
            let refused = "stall monitor keeps its configuration"
            let error = try await line(refused)?.metadata["error"].map { "\($0)" }
            #expect(error?.contains("logLevel is loud; set it to trace, debug") == true)
            #expect(service.level.value == .info)
            try write("  ticks: 9\n")
            #expect(try await keys(in: changed, until: ["ticks"]) == ["ticks"])
            #expect(lines.all.filter { $0.text == refused }.count == 1)
        }
    }
}
