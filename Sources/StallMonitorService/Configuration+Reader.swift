public import Configuration
import StallDetection
public import StallMonitor
import StallReports

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
    /// | `reportsJobsLongerThanMilliseconds` | int, 1 to 600000 | none: long jobs are only counted |
    /// | `startupGraceMilliseconds` | int, 0 to 3600000 | 0 |
    /// | `countsTracedStalls` | bool | false |
    /// | `limits.reports`, `limits.runs` | int, 1 to 1000000 | 1000, 100 |
    /// | `limits.megabytes` | int, 1 to 1048576 | 256 |
    /// | `memory.reports` | int, 1 to 1000000: kept for a disk that fails | 256 |
    /// | `memory.megabytes` | int, 1 to 1048576 | 8 |
    /// | `cost.processorPercent`, `cost.heldPercent` | number, 0.0001 to 100 | 1, 0.1 |
    /// | `cost.processorBurstMilliseconds`, `cost.heldBurstMilliseconds` | int, 1 to 600000 | 3000, 50 |
    /// | `repeats.windowSeconds`, `repeats.longestWindowSeconds` | int, 0 to 86400 | 60, 3600 |
    /// | `repeats.reportsPerMinute`, `repeats.burst` | int, 1 to 100000 | 120, 60 |
    /// | `repeats.megabytesPerMinute` | int, 1 to 100000 | 32 |
    /// | `service.name`, `service.version`, `service.instance` | text | the executable's name, none, none |
    /// | `keepsLiveRecord` | bool | true |
    /// | `captureSignal` | int, 1 to 64 | 27 (`SIGPROF`) |
    /// | `capturesAllThreads` | bool | false |
    /// | `followsLocks` | bool | true |
    /// | `health.port` | int, 0 to 65535: answers `GET /health` there | none: no port is opened |
    /// | `health.address` | a numeric address | `127.0.0.1` |
    /// | `health.failsAfterSeconds` | int, 1 to 3600 | 10 |
    /// | `abortsAfterSeconds` | int, 1 to 86400: so long a stall may last, then the process ends | none: no stall ends it |
    /// | `ownCode.modules`, `ownCode.libraries` | list of Swift module names | none |
    /// | `ownCode.symbols`, `ownCode.sources`, `ownCode.binaries` | list of names with `*` for any text, see ``OwnCode`` | none |
    ///
    /// - Parameter config: scoped to where the keys are: `stallMonitor` in the shipped file, so that the environment variable
    ///   of `tickMilliseconds` is `STALL_MONITOR_TICK_MILLISECONDS`.
    /// - Throws: a `ConfigurationRangeError` that names the key and its range, or what the reader says of a value of the wrong form.
    public init(config: ConfigReader) async throws {
        self.init()
        try await config.set(&enabled, "enabled")
        try await config.set(&directory, "directory")
        try await readRule(config)
        try await config.set(&reportsJobsLongerThan, "reportsJobsLongerThanMilliseconds", in: .milliseconds(1))
        try await config.set(&startupGrace, "startupGraceMilliseconds", in: .milliseconds(1))
        try await config.set(&countsTracedStalls, "countsTracedStalls")
        try await readLimits(config)
        try await readCost(config.scoped(to: "cost"))
        try await readRepeats(config.scoped(to: "repeats"))
        service = try await ServiceIdentity(config: config.scoped(to: "service"))
        try await config.set(&keepsLiveRecord, "keepsLiveRecord")
        if let signal = try await config.fetchInt(forKey: "captureSignal") { captureSignal = Int32(clamping: signal) }
        try await config.set(&capturesAllThreads, "capturesAllThreads")
        try await config.set(&followsLocks, "followsLocks")
        try await readOwnCode(config.scoped(to: "ownCode"))
        health = try await HealthOptions(config: config.scoped(to: "health"))
        try await config.set(&abortsAfter, "abortsAfterSeconds", in: .seconds(1))
        if let error = rangeErrors.first { throw error }
    }

    private mutating func readRule(_ config: ConfigReader) async throws {
        try await config.set(&rule.tick, "tickMilliseconds", in: .milliseconds(1))
        try await config.set(&rule.ticks, "ticks")
        let (repeated, congested) = (config.scoped(to: "repeated"), config.scoped(to: "congested"))
        var row = StallRule.Repeated()
        try await repeated.set(&row.turns, "turns")
        try await repeated.set(&row.ticks, "ticks")
        rule.repeated = try await repeated.fetchBool(forKey: "enabled") ?? true ? row : nil
        let turn = StallRule.Congested(ticks: try await congested.fetchInt(forKey: "ticks"))
        rule.congested = try await congested.fetchBool(forKey: "enabled") ?? true ? turn : nil
    }

    private mutating func readLimits(_ config: ConfigReader) async throws {
        let (limits, memory) = (config.scoped(to: "limits"), config.scoped(to: "memory"))
        try await limits.set(&self.limits.reports, "reports")
        try await limits.set(&self.limits.runs, "runs")
        try await limits.set(megabytes: &self.limits.bytes, "megabytes")
        try await memory.set(&self.memory.reports, "reports")
        try await memory.set(megabytes: &self.memory.bytes, "megabytes")
    }

    private mutating func readCost(_ config: ConfigReader) async throws {
        try await config.set(percent: &cost.processorShare, "processorPercent")
        try await config.set(&cost.processorBurst, "processorBurstMilliseconds", in: .milliseconds(1))
        try await config.set(percent: &cost.heldShare, "heldPercent")
        try await config.set(&cost.heldBurst, "heldBurstMilliseconds", in: .milliseconds(1))
    }

    private mutating func readRepeats(_ config: ConfigReader) async throws {
        var window = repeats.window
        var longest = repeats.longestWindow
        try await config.set(&window, "windowSeconds", in: .seconds(1))
        try await config.set(&longest, "longestWindowSeconds", in: .seconds(1))
        (repeats.window, repeats.longestWindow) = (window, max(window, longest))
        if let reports = try await config.fetchInt(forKey: "reportsPerMinute") { repeats.reportsPerMinute = reports }
        try await config.set(&repeats.burst, "burst")
        var bytes = 0
        try await config.set(megabytes: &bytes, "megabytesPerMinute")
        if try await config.fetchInt(forKey: "megabytesPerMinute") != nil { repeats.bytesPerMinute = bytes }
    }

    private mutating func readOwnCode(_ config: ConfigReader) async throws {
        ownCode = OwnCode(
            modules: Set(try await config.fetchStringArray(forKey: "modules") ?? []),
            libraries: Set(try await config.fetchStringArray(forKey: "libraries") ?? []),
            symbols: Set(try await config.fetchStringArray(forKey: "symbols") ?? []),
            sources: Set(try await config.fetchStringArray(forKey: "sources") ?? []),
            binaries: Set(try await config.fetchStringArray(forKey: "binaries") ?? [])
        )
    }
}

extension StallMonitor.Configuration.HealthOptions {
    fileprivate init?(config: ConfigReader) async throws {
        guard let port = try await config.fetchInt(forKey: "port") else { return nil }
        self.init(port: port)
        try await config.set(&address, "address")
        try await config.set(&failsAfter, "failsAfterSeconds", in: .seconds(1))
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

// What is not set keeps its value.
extension ConfigReader {
    fileprivate func set(_ value: inout Bool, _ key: ConfigKey) async throws {
        value = try await fetchBool(forKey: key) ?? value
    }

    fileprivate func set(_ value: inout String, _ key: ConfigKey) async throws {
        value = try await fetchString(forKey: key) ?? value
    }

    fileprivate func set(_ value: inout Int, _ key: ConfigKey) async throws {
        value = try await fetchInt(forKey: key) ?? value
    }

    /// A whole number of a unit. Any number makes a duration: what is too long is found by its range.
    fileprivate func set(_ value: inout Duration, _ key: ConfigKey, in unit: Duration) async throws {
        var read: Duration? = value
        try await set(&read, key, in: unit)
        value = read ?? value
    }

    fileprivate func set(_ value: inout Duration?, _ key: ConfigKey, in unit: Duration) async throws {
        guard let number = try await fetchInt(forKey: key) else { return }
        value = unit * min(max(number, -1_000_000_000), 1_000_000_000)
    }

    fileprivate func set(megabytes value: inout Int, _ key: ConfigKey) async throws {
        guard let number = try await fetchInt(forKey: key) else { return }
        value = min(max(number, -1), 1 << 40) << 20
    }

    fileprivate func set(percent value: inout Double, _ key: ConfigKey) async throws {
        if let number = try await fetchDouble(forKey: key) { value = number / 100 }
    }
}
