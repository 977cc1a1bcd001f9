public import Configuration
public import StallMonitor
import StallReports
import SystemPackage

extension StallMonitor.Configuration {
    /// Reads the configuration. A key that is not set keeps its default; a value of the wrong form is an error, so that a
    /// slip in a file does not silently switch a limit off.
    ///
    /// | key | form | default |
    /// |---|---|---|
    /// | `enabled` | bool | true |
    /// | `directory` | path | `./stall-reports` |
    /// | `tickMilliseconds` | int, 1 to 60000 | 50 |
    /// | `ticks` | int, 1 to 10000 | 5 |
    /// | `repeated.enabled`, `congested.enabled` | bool | true, true |
    /// | `repeated.turns`, `repeated.ticks` | int, 2 to 1000 and 1 to 10000 | 5, 1 |
    /// | `congested.ticks` | int, 1 to 10000 | as `ticks` |
    /// | `startupGraceMilliseconds` | int, 0 to 3600000 | 0 |
    /// | `countsTracedStalls` | bool | false |
    /// | `limits.reports` | int, at least 1 | 1000 |
    /// | `limits.megabytes` | int, at least 1 | 256 |
    /// | `memory.reports` | int, at least 1: kept for a disk that fails | 256 |
    /// | `memory.megabytes` | int, at least 1 | 8 |
    /// | `cost.processorPercent`, `cost.heldPercent` | number, 0.0001 to 100 | 1, 0.1 |
    /// | `cost.processorBurstMilliseconds`, `cost.heldBurstMilliseconds` | int, 1 to 600000 | 3000, 50 |
    /// | `repeats.windowSeconds`, `repeats.longestWindowSeconds` | int, 0 to 86400 | 60, 3600 |
    /// | `repeats.reportsPerMinute`, `repeats.burst` | int, 1 to 100000 | 120, 60 |
    /// | `repeats.megabytesPerMinute` | int, 1 to 100000 | 32 |
    /// | `service.name`, `service.version`, `service.instance` | text | the executable's name, none, none |
    /// | `liveRecord` | bool | true |
    /// | `captureSignal` | int, 1 to 64 | 27 (`SIGPROF`) |
    /// | `captureAllThreads` | bool | false |
    /// | `followLocks` | bool | true |
    /// | `ownModules`, `libraryModules` | list of Swift module names | none |
    /// | `ownSymbols`, `ownSources`, `ownBinaries` | list of names with `*` for any text, see ``OwnCode`` | none |
    ///
    /// - Parameter config: scoped to where the keys are: `stallMonitor` in the shipped file, so that the environment variable
    ///   of `tickMilliseconds` is `STALL_MONITOR_TICK_MILLISECONDS`.
    public init(config: ConfigReader) async throws {
        self.init()
        let limits = config.scoped(to: "limits")
        isEnabled = try await config.fetchBool(forKey: "enabled") ?? isEnabled
        directory = try await config.fetchString(forKey: "directory") ?? directory
        rule = StallRule(
            tick: .milliseconds(try await config.int("tickMilliseconds", in: 1...60_000) ?? 50),
            ticks: try await config.int("ticks", in: 1...10_000) ?? rule.ticks,
            repeated: try await StallRule.Repeated(config: config.scoped(to: "repeated")),
            congested: try await StallRule.Congested(config: config.scoped(to: "congested"))
        )
        let grace = try await config.int("startupGraceMilliseconds", in: 0...3_600_000)
        startupGrace = grace.map { .milliseconds($0) } ?? startupGrace
        countsTracedStalls = try await config.fetchBool(forKey: "countsTracedStalls") ?? countsTracedStalls
        self.limits.maxReports = try await limits.int("reports", in: 1...1_000_000) ?? self.limits.maxReports
        let megabytes = try await limits.int("megabytes", in: 1...1_048_576)
        self.limits.maxBytes = megabytes.map { $0 << 20 } ?? self.limits.maxBytes
        memory = try await StallMonitor.MemoryLimits(config: config.scoped(to: "memory"))
        cost = try await StallMonitor.CostLimits(config: config.scoped(to: "cost"))
        repeats = try await RepeatRule(config: config.scoped(to: "repeats"), defaults: repeats)
        service = try await ServiceIdentity(config: config.scoped(to: "service"))
        keepsLiveRecord = try await config.fetchBool(forKey: "liveRecord") ?? keepsLiveRecord
        captureSignal = try await config.int("captureSignal", in: 1...64).map(Int32.init) ?? captureSignal
        captureAllThreads = try await config.fetchBool(forKey: "captureAllThreads") ?? captureAllThreads
        followsLocks = try await config.fetchBool(forKey: "followLocks") ?? followsLocks
        ownCode = OwnCode(
            modules: Set(try await config.fetchStringArray(forKey: "ownModules") ?? []),
            libraries: Set(try await config.fetchStringArray(forKey: "libraryModules") ?? []),
            symbols: Set(try await config.fetchStringArray(forKey: "ownSymbols") ?? []),
            sources: Set(try await config.fetchStringArray(forKey: "ownSources") ?? []),
            binaries: Set(try await config.fetchStringArray(forKey: "ownBinaries") ?? [])
        )
    }

    /// Reads `file` (YAML) under the environment: a variable wins over the file, the file over the defaults.
    ///
    /// - Parameter file: may be missing.
    /// - Throws: what the file's parser or a value of the wrong form has to say.
    public static func load(file: String = "config/stall-monitor.yaml") async throws -> Self {
        let reader = ConfigReader(providers: [
            EnvironmentVariablesProvider(),
            try await FileProvider<YAMLSnapshot>(filePath: FilePath(file), allowMissing: true),
        ])
        return try await Self(config: reader.scoped(to: "stallMonitor"))
    }
}

extension RepeatRule {
    fileprivate init(config: ConfigReader, defaults: RepeatRule) async throws {
        let window = try await config.int("windowSeconds", in: 0...86_400).map { Duration.seconds($0) }
        let longest = try await config.int("longestWindowSeconds", in: 0...86_400).map { Duration.seconds($0) }
        let megabytes = try await config.int("megabytesPerMinute", in: 1...100_000)
        self.init(
            window: window ?? defaults.window,
            longestWindow: longest ?? defaults.longestWindow,
            reportsPerMinute: try await config.int("reportsPerMinute", in: 1...100_000) ?? defaults.reportsPerMinute,
            burst: try await config.int("burst", in: 1...100_000) ?? defaults.burst,
            bytesPerMinute: megabytes.map { $0 << 20 } ?? defaults.bytesPerMinute
        )
    }
}

extension StallRule.Repeated {
    /// Nil: switched off.
    fileprivate init?(config: ConfigReader) async throws {
        guard try await config.fetchBool(forKey: "enabled") ?? true else { return nil }
        let standard = Self()
        self.init(
            turns: try await config.int("turns", in: 2...1_000) ?? standard.turns,
            ticks: try await config.int("ticks", in: 1...10_000) ?? standard.ticks
        )
    }
}

extension StallRule.Congested {
    /// Nil: switched off.
    fileprivate init?(config: ConfigReader) async throws {
        guard try await config.fetchBool(forKey: "enabled") ?? true else { return nil }
        self.init(ticks: try await config.int("ticks", in: 1...10_000))
    }
}

extension ServiceIdentity {
    fileprivate init?(config: ConfigReader) async throws {
        guard let name = try await config.fetchString(forKey: "name") else { return nil }
        self.init(
            name: name,
            version: try await config.fetchString(forKey: "version"),
            instance: try await config.fetchString(forKey: "instance")
        )
    }
}

extension StallMonitor.MemoryLimits {
    fileprivate init(config: ConfigReader) async throws {
        let defaults = Self()
        self.init(
            reports: try await config.int("reports", in: 1...1_000_000) ?? defaults.reports,
            bytes: try await config.int("megabytes", in: 1...1_048_576).map { $0 << 20 } ?? defaults.bytes
        )
    }
}

extension StallMonitor.CostLimits {
    fileprivate init(config: ConfigReader) async throws {
        let defaults = Self()
        let burst = try await config.int("processorBurstMilliseconds", in: 1...600_000)
        let heldBurst = try await config.int("heldBurstMilliseconds", in: 1...600_000)
        self.init(
            processorShare: try await config.percent("processorPercent") ?? defaults.processorShare,
            processorBurst: burst.map { .milliseconds($0) } ?? defaults.processorBurst,
            heldShare: try await config.percent("heldPercent") ?? defaults.heldShare,
            heldBurst: heldBurst.map { .milliseconds($0) } ?? defaults.heldBurst
        )
    }
}

extension ConfigReader {
    /// As a share: 1 for 100 %.
    fileprivate func percent(_ key: ConfigKey) async throws -> Double? {
        guard let value = try await fetchDouble(forKey: key) else { return nil }
        guard value >= 0.0001, value <= 100 else {
            let shown = Int(exactly: value.rounded()) ?? 0
            throw ConfigurationRangeError(key: key.description, value: shown, range: 0...100)
        }
        return value / 100
    }

    fileprivate func int(_ key: ConfigKey, in range: ClosedRange<Int>) async throws -> Int? {
        guard let value = try await fetchInt(forKey: key) else { return nil }
        guard range.contains(value) else {
            throw ConfigurationRangeError(key: key.description, value: value, range: range)
        }
        return value
    }
}

/// A number in the configuration that is too small or too large.
public struct ConfigurationRangeError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The key, without its scope.
    public let key: String
    /// What it was set to.
    public let value: Int
    /// What it may be set to.
    public let range: ClosedRange<Int>

    /// What is set, and what to set instead.
    public var description: String {
        "stall monitor configuration: \(key) is \(value); set it to \(range.lowerBound) to \(range.upperBound)"
    }
}
