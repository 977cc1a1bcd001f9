public import Configuration
import Logging
import StallDetection
public import StallMonitor
import StallReports

extension StallMonitor.Configuration {
    /// Reads the configuration. A key that is not set keeps its default. A value of the wrong form is an error, so that a typing error in a file
    /// does not silently switch off a limit.
    ///
    /// The keys, their forms and their defaults: <doc:ConfigurationKeys>.
    ///
    /// - Parameter config: Scoped to the keys: `stallMonitor` in the shipped file. The environment variable of `tickMilliseconds`
    ///   is then `STALL_MONITOR_TICK_MILLISECONDS`.
    /// - Throws: A `ConfigurationRangeError` with the key and its range, or the reader's error for a value of the wrong form.
    public init(config: ConfigReader) async throws {
        self = try await ConfigurationDraft(config).configuration()
    }
}

#if YAML
    import SystemPackage

    // Only with the package's trait `YAML`, so that servers without it do not build a YAML parser.
    extension StallMonitor.Configuration {
        /// Reads environment variables and `file` (YAML). A variable takes precedence over the file, and the file over the defaults.
        /// A key of the file's section that the monitor does not know, usually a misspelt one, is named on standard error; so is a misspelt
        /// variable.
        ///
        /// - Parameter file: The path. The file may be missing.
        /// - Throws: An error that names the file and says why it cannot be used, or the error for a value of the wrong form or out of range.
        public static func load(file: String = "config/stall-monitor.yaml") async throws -> Self {
            let reader = ConfigReader(providers: [
                EnvironmentVariablesProvider(),
                try await UnusableFile.naming(file) {
                    try await FileProvider<YAMLSnapshot>(filePath: FilePath(file), allowMissing: true)
                },
            ])
            StandardError.warn(ofUnknownKeys: UnknownKeys(file: file).findNew())
            return try await Self(config: reader.scoped(to: "stallMonitor"))
        }
    }

    /// A configuration file that cannot be read, or is not YAML. The parser's error does not say which file that was.
    struct UnusableFile: Error, CustomStringConvertible {
        let file: String
        let reason: any Error

        var description: String { "\(file) cannot be used as a configuration file: \(reason)" }

        static func naming<Provider>(_ file: String, _ open: () async throws -> Provider) async throws -> Provider {
            do { return try await open() } catch { throw Self(file: file, reason: error) }
        }
    }
#endif

/// A configuration while it is being read. Where several keys set one option, it has a separate field for each key.
struct ConfigurationDraft: Sendable {
    var whole = StallMonitor.Configuration()
    var hasRepeated = true
    var repeated = StallRule.Repeated()
    var hasCongested = true
    var congestedTicks: Int?
    var serviceName: String?
    var serviceVersion: String?
    var serviceInstance: String?
    var healthPort: Int?
    var health = StallMonitor.Configuration.HealthOptions(port: 0)
    var captureSignal = Int(StallMonitor.Configuration.defaultCaptureSignal)
    var logLevel: String?

    init() {}

    /// Reads all keys. They are read one by one, so a provider that gets other values meanwhile gives some old and some new ones. Two
    /// readings in a row are equal only if neither is such a mixture.
    init(_ config: ConfigReader) async throws {
        self = try await Self(readingOnce: config)
        for _ in 0..<Self.mostReadings {
            let before = texts
            self = try await Self(readingOnce: config)
            if texts == before { return }
        }
    }

    /// A provider whose values change faster than they are read gets no more time than this.
    private static let mostReadings = 10

    private init(readingOnce config: ConfigReader) async throws {
        self.init()
        for option in ConfigurationOption.all { try await option.read(config, &self) }
    }

    /// The value of each key.
    private var texts: [String?] { ConfigurationOption.all.map { $0.text(self) } }

    /// Nil if no level is set.
    func level() throws -> Logger.Level? {
        guard let logLevel else { return nil }
        if let level = Logger.Level(rawValue: logLevel) { return level }
        let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
        throw ConfigurationRangeError(key: "logLevel", value: logLevel, range: levels)
    }

    /// - Throws: A `ConfigurationRangeError` for the first value out of range.
    func configuration() throws -> StallMonitor.Configuration {
        var configuration = whole
        configuration.rule.repeated = hasRepeated ? repeated : nil
        configuration.rule.congested = hasCongested ? StallRule.Congested(ticks: congestedTicks) : nil
        // A window that is longer than the longest window raises that limit. Values out of range are found below.
        let (window, longest) = (whole.repeats.window, whole.repeats.longestWindow)
        configuration.repeats.longestWindow = longest < .zero ? longest : max(window, longest)
        configuration.service = serviceName.map {
            ServiceIdentity(name: $0, version: serviceVersion, instance: serviceInstance)
        }
        configuration.health = healthPort.map { port in
            .init(port: port, address: health.address, failsAfter: health.failsAfter)
        }
        configuration.captureSignal = Int32(clamping: captureSignal)
        if let error = configuration.rangeErrors.first { throw error }
        return configuration
    }
}

extension ConfigurationOption {
    /// Every key, in the order of the shipped file.
    static let all: [ConfigurationOption] = [
        .bool("enabled", \.whole.enabled, "false: the monitor does nothing but answer health probes"),
        .text("directory", \.whole.directory, "the directory for reports", "`./stall-reports`"),
        .text("logLevel", \.logLevel, "level of the log lines about stalls, of `StallMonitorService(config:)`", "info"),
        .duration("tickMilliseconds", \.whole.rule.tick, 1...60_000, "how often a busy loop is sampled"),
        .integer(
            "ticks",
            \.whole.rule.ticks,
            1...10_000,
            "number of ticks without a transition after which a loop is stalled"
        ),
        .bool("repeated.enabled", \.hasRepeated, "whether several long turns in a row are a stall"),
        .integer("repeated.turns", \.repeated.turns, 2...1_000, "number of such turns"),
        .integer("repeated.ticks", \.repeated.ticks, 1...10_000, "each lasts longer than this number of ticks"),
        .bool("congested.enabled", \.hasCongested, "whether one turn full of short callbacks is a stall"),
        .integer(
            "congested.ticks",
            \.congestedTicks,
            1...10_000,
            "such a turn lasts longer than this number of ticks",
            "as `ticks`"
        ),
        .duration(
            "reportsJobsLongerThanMilliseconds",
            \.whole.reportsJobsLongerThan,
            1...600_000,
            "a job of a task pool that takes longer is reported",
            "none: long jobs are only counted"
        ),
        .duration(
            "startupGraceMilliseconds",
            \.whole.startupGrace,
            0...3_600_000,
            "time after the start in which nothing is a stall"
        ),
        .bool("countsTracedStalls", \.whole.countsTracedStalls, "whether stalls count while a debugger is attached"),
        .integer("limits.reports", \.whole.limits.reports, 1...1_000_000, "finished reports in the directory"),
        .integer("limits.runs", \.whole.limits.runs, 1...1_000_000, "run records in the directory"),
        .megabytes("limits.megabytes", \.whole.limits.bytes, atMost: 1 << 20, "size of the directory"),
        .integer(
            "memory.reports",
            \.whole.memory.reports,
            1...1_000_000,
            "reports kept in memory while the disk fails"
        ),
        .megabytes("memory.megabytes", \.whole.memory.bytes, atMost: 1 << 20, "memory for them"),
        .percent(
            "cost.processorPercent",
            \.whole.cost.processorShare,
            "of a processor, for captures, naming and writing"
        ),
        .duration(
            "cost.processorBurstMilliseconds",
            \.whole.cost.processorBurst,
            1...600_000,
            "what may be used in one burst"
        ),
        .percent("cost.heldPercent", \.whole.cost.heldShare, "of the time, for holding watched threads"),
        .duration("cost.heldBurstMilliseconds", \.whole.cost.heldBurst, 1...600_000, "what may be used in one burst"),
        .duration(
            "repeats.windowSeconds",
            \.whole.repeats.window,
            0...86_400,
            "time after a report in which its fault is only counted"
        ),
        .duration(
            "repeats.longestWindowSeconds",
            \.whole.repeats.longestWindow,
            0...86_400,
            "the longest such time: it grows while the fault repeats"
        ),
        .integer("repeats.reportsPerMinute", \.whole.repeats.reportsPerMinute, 1...100_000, "reports of all faults"),
        .integer("repeats.burst", \.whole.repeats.burst, 1...100_000, "reports at once"),
        .megabytes("repeats.megabytesPerMinute", \.whole.repeats.bytesPerMinute, atMost: 100_000, "written"),
        .bool(
            "keepsLiveRecord",
            \.whole.keepsLiveRecord,
            "whether stalls in progress are kept in a file that survives the process"
        ),
        .text("service.name", \.serviceName, "the server's name in reports", "the executable's name"),
        .text("service.version", \.serviceVersion, "with a name only"),
        .text("service.instance", \.serviceInstance, "with a name only"),
        .integer("health.port", \.healthPort, 0...65_535, "answers `GET /health` there", "none: no port is opened"),
        .text("health.address", \.health.address, "a numeric address"),
        .duration(
            "health.failsAfterSeconds",
            \.health.failsAfter,
            1...3_600,
            "answers 503 while a stall lasts this long or longer"
        ),
        .duration(
            "abortsAfterSeconds",
            \.whole.abortsAfter,
            1...86_400,
            "how long a stall may last before the process is ended",
            "none: a stall never ends the process"
        ),
        .integer("captureSignal", \.captureSignal, 1...64, "takes a running thread's registers; 27 is `SIGPROF`"),
        .bool("capturesAllThreads", \.whole.capturesAllThreads, "whether a report has the stacks of all threads"),
        .bool("followsLocks", \.whole.followsLocks, "whether the owner of a lock is looked up"),
        .names("ownCode.modules", \.whole.ownCode.modules, "Swift modules that are the server's own"),
        .names("ownCode.libraries", \.whole.ownCode.libraries, "Swift modules that are not"),
        .names("ownCode.symbols", \.whole.ownCode.symbols, "functions that are; `*` is any text, see `OwnCode`"),
        .names("ownCode.sources", \.whole.ownCode.sources, "source files that are"),
        .names("ownCode.binaries", \.whole.ownCode.binaries, "executables and libraries that are"),
    ]
}
