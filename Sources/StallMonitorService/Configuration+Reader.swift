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
    import Yams

    // Only with the package's trait `YAML`, so that servers without it do not build a YAML parser.
    extension StallMonitor.Configuration {
        /// Reads environment variables and `file` (YAML). A variable takes precedence over the file, and the file over the defaults.
        /// A key of the file's section that the monitor does not know, usually a misspelt one, is named on standard error; so is a misspelt
        /// variable.
        ///
        /// - Parameter file: The path. The file may be missing.
        /// - Throws: An error that names the file and says why it cannot be used, or the error for a value of the wrong form or out of range.
        public static func load(file: String = "config/stall-monitor.yaml") async throws -> Self {
            try await FileReaders.run {
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
    }

    /// A configuration file that cannot be read, or is not YAML. The parser's error says neither which file that was nor that it is empty.
    struct UnusableFile: Error, CustomStringConvertible {
        let description: String

        init(_ file: String, _ reason: any Error) {
            let text = Self.isEmpty(file) ? "it has no keys; write 'stallMonitor:' into it, or remove it" : "\(reason)"
            description = "\(file) cannot be used as a configuration file: \(text)"
        }

        static func naming<Provider>(_ file: String, _ open: () async throws -> Provider) async throws -> Provider {
            do { return try await open() } catch { throw Self(file, error) }
        }

        /// Also one in which everything is commented out.
        private static func isEmpty(_ file: String) -> Bool {
            guard let text = readFile(file, limit: 1 << 20) else { return false }
            do { return try Yams.compose(yaml: text).map { $0.null != nil } ?? true } catch { return false }
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
        .duration(.tick, \.whole.rule.tick, "how often a busy loop is sampled"),
        .integer(.ticks, \.whole.rule.ticks, "number of ticks without a transition after which a loop is stalled"),
        .bool("repeated.enabled", \.hasRepeated, "whether several long turns in a row are a stall"),
        .integer(.repeatedTurns, \.repeated.turns, "number of such turns"),
        .integer(.repeatedTicks, \.repeated.ticks, "each lasts longer than this number of ticks"),
        .bool("congested.enabled", \.hasCongested, "whether one turn full of short callbacks is a stall"),
        .integer(.congestedTicks, \.congestedTicks, "such a turn lasts longer than this number of ticks", "as `ticks`"),
        .duration(
            .reportsJobsLongerThan,
            \.whole.reportsJobsLongerThan,
            "a job of a task pool that takes longer is reported",
            "none: long jobs are only counted"
        ),
        .duration(.startupGrace, \.whole.startupGrace, "time after the start in which nothing is a stall"),
        .bool("countsTracedStalls", \.whole.countsTracedStalls, "whether stalls count while a debugger is attached"),
        .integer(.reports, \.whole.limits.reports, "finished reports in the directory"),
        .integer(.runs, \.whole.limits.runs, "run records in the directory"),
        .megabytes(.directorySize, \.whole.limits.bytes, "size of the directory"),
        .integer(.reportsInMemory, \.whole.memory.reports, "reports kept in memory while the disk fails"),
        .megabytes(.memory, \.whole.memory.bytes, "memory for them"),
        .percent(
            "cost.processorPercent",
            \.whole.cost.processorShare,
            "of a processor, for captures, naming and writing"
        ),
        .duration(.processorBurst, \.whole.cost.processorBurst, "what may be used in one burst"),
        .percent("cost.heldPercent", \.whole.cost.heldShare, "of the time, for holding watched threads"),
        .duration(.heldBurst, \.whole.cost.heldBurst, "what may be used in one burst"),
        .duration(.window, \.whole.repeats.window, "time after a report in which its fault is only counted"),
        .duration(
            .longestWindow,
            \.whole.repeats.longestWindow,
            "the longest such time: it grows while the fault repeats"
        ),
        .integer(.reportsPerMinute, \.whole.repeats.reportsPerMinute, "reports of all faults"),
        .integer(.burst, \.whole.repeats.burst, "reports at once"),
        .megabytes(.bytesPerMinute, \.whole.repeats.bytesPerMinute, "written"),
        .bool(
            "keepsLiveRecord",
            \.whole.keepsLiveRecord,
            "whether stalls in progress are kept in a file that survives the process"
        ),
        .text("service.name", \.serviceName, "the server's name in reports", "the executable's name"),
        .text("service.version", \.serviceVersion, "with a name only"),
        .text("service.instance", \.serviceInstance, "with a name only"),
        .integer(.healthPort, \.healthPort, "answers `GET /health` there", "none: no port is opened"),
        .text("health.address", \.health.address, "a numeric address"),
        .duration(.failsAfter, \.health.failsAfter, "answers 503 while a stall lasts this long or longer"),
        .duration(
            .abortsAfter,
            \.whole.abortsAfter,
            "how long a stall may last before the process is ended",
            "none: a stall never ends the process"
        ),
        .integer(.captureSignal, \.captureSignal, "takes a running thread's registers; 27 is `SIGPROF`"),
        .bool("capturesAllThreads", \.whole.capturesAllThreads, "whether a report has the stacks of all threads"),
        .bool("followsLocks", \.whole.followsLocks, "whether the owner of a lock is looked up"),
        .names(
            "ownCode.modules",
            \.whole.ownCode.modules,
            "Swift modules that are the server's own; if one is named, all others are not"
        ),
        .names("ownCode.libraries", \.whole.ownCode.libraries, "Swift modules that are not; `*` is any text"),
        .names(
            "ownCode.symbols",
            \.whole.ownCode.symbols,
            "C and C++ functions that are; `*` is any text, see `OwnCode`"
        ),
        .names("ownCode.sources", \.whole.ownCode.sources, "source files that are"),
        .names("ownCode.binaries", \.whole.ownCode.binaries, "executables and libraries that are"),
    ]
}
