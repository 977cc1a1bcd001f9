public import Configuration
public import StallMonitor

extension StallMonitor.Configuration {
    /// Reads the configuration. A key that is not set keeps its default; a value of the wrong form is an error, so that a
    /// slip in a file does not silently switch a limit off.
    ///
    /// The keys, their forms and their defaults: <doc:ConfigurationKeys>.
    ///
    /// - Parameter config: scoped to where the keys are: `stallMonitor` in the shipped file, so that the environment variable
    ///   of `tickMilliseconds` is `STALL_MONITOR_TICK_MILLISECONDS`.
    /// - Throws: a `ConfigurationRangeError` that names the key and its range, or what the reader says of a value of the wrong form.
    public init(config: ConfigReader) async throws {
        var draft = ConfigurationDraft()
        for option in ConfigurationOption.all { try await option.read(config, &draft) }
        self = try draft.configuration()
    }
}
