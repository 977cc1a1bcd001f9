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
    /// | `startupGraceMilliseconds` | int, 0 to 3600000 | 0 |
    /// | `countsTracedStalls` | bool | false |
    /// | `limits.reports` | int, at least 1 | 1000 |
    /// | `limits.megabytes` | int, at least 1 | 256 |
    /// | `service.name`, `service.version`, `service.instance` | text | the executable's name, none, none |
    /// | `captureSignal` | int, 1 to 64 | 27 (`SIGPROF`) |
    /// | `ownModules`, `libraryModules` | list of Swift module names | none |
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
            ticks: try await config.int("ticks", in: 1...10_000) ?? rule.ticks
        )
        let grace = try await config.int("startupGraceMilliseconds", in: 0...3_600_000)
        startupGrace = grace.map { .milliseconds($0) } ?? startupGrace
        countsTracedStalls = try await config.fetchBool(forKey: "countsTracedStalls") ?? countsTracedStalls
        self.limits.maxReports = try await limits.int("reports", in: 1...1_000_000) ?? self.limits.maxReports
        let megabytes = try await limits.int("megabytes", in: 1...1_048_576)
        self.limits.maxBytes = megabytes.map { $0 << 20 } ?? self.limits.maxBytes
        service = try await ServiceIdentity(config: config.scoped(to: "service"))
        captureSignal = try await config.int("captureSignal", in: 1...64).map(Int32.init) ?? captureSignal
        ownCode = OwnCode(
            modules: Set(try await config.fetchStringArray(forKey: "ownModules") ?? []),
            libraries: Set(try await config.fetchStringArray(forKey: "libraryModules") ?? [])
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

extension ConfigReader {
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
