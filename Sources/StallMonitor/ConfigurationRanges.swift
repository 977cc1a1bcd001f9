import StallDetection
import StallReports

/// A value of the configuration that is too small or too large.
public struct ConfigurationRangeError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The name of the value in a configuration file, without the scope: `repeats.burst`. In code it is the property of that
    /// name.
    public let key: String
    /// The value that was set, in the key's unit.
    public let value: String
    /// The values that are allowed: `1 to 100000`.
    public let range: String

    package init(key: String, value: String, range: String) {
        (self.key, self.value, self.range) = (key, value, range)
    }

    /// The value that was set, and what to set instead.
    public var description: String { "\(key) is \(value); set it to \(range)" }
}

extension StallMonitor.Configuration {
    /// The values out of their ranges. ``StallMonitor/start(_:watching:onEvent:)-(_,WatchSelection,_)`` replaces each by the
    /// nearer end of its range, but an ``abortsAfter`` of zero or less by nil and a ``captureSignal`` by the default, and reports that
    /// as a fault (`configurationOutOfRange`): a mistake in the configuration ends neither the server nor the monitoring.
    public var rangeErrors: [ConfigurationRangeError] { broughtIntoRange().errors }

    /// The same configuration with each value replaced by the nearer end of its range.
    func broughtIntoRange() -> (configuration: Self, errors: [ConfigurationRangeError]) {
        var (configuration, check) = (self, RangeCheck())
        check.bring(&configuration.rule)
        let jobs = Duration.milliseconds(1) ... .seconds(600)
        check.bring(&configuration.reportsJobsLongerThan, "reportsJobsLongerThanMilliseconds", to: jobs)
        check.bring(&configuration.abortsAfter, "abortsAfterSeconds", to: .seconds(1) ... .seconds(86_400))
        // Whoever sets no time may mean: never. The nearer end would end the process at its first stall of a second.
        if let abortsAfter, abortsAfter <= .zero { configuration.abortsAfter = nil }
        check.bring(&configuration.startupGrace, "startupGraceMilliseconds", to: .zero ... .seconds(3600))
        check.bring(&configuration.limits.reports, "limits.reports", to: 1...1_000_000)
        check.bring(&configuration.limits.runs, "limits.runs", to: 1...1_000_000)
        check.bring(megabytes: &configuration.limits.bytes, "limits.megabytes", atMost: 1 << 20)
        check.bring(&configuration.memory.reports, "memory.reports", to: 1...1_000_000)
        check.bring(megabytes: &configuration.memory.bytes, "memory.megabytes", atMost: 1 << 20)
        check.bring(share: &configuration.cost.processorShare, "cost.processorPercent")
        check.bring(share: &configuration.cost.heldShare, "cost.heldPercent")
        let bursts = Duration.microseconds(1) ... .seconds(600)
        check.bring(&configuration.cost.processorBurst, "cost.processorBurstMilliseconds", to: bursts)
        check.bring(&configuration.cost.heldBurst, "cost.heldBurstMilliseconds", to: bursts)
        check.bring(&configuration.repeats)
        check.bring(&configuration.captureSignal, "captureSignal", to: 1...64)
        // The nearer ends belong to others: SIGHUP, and the last real-time signal.
        if configuration.captureSignal != captureSignal { configuration.captureSignal = Self.defaultCaptureSignal }
        if var health {
            check.bring(&health.port, "health.port", to: 0...65_535)
            check.bring(&health.failsAfter, "health.failsAfterSeconds", to: .seconds(1) ... .seconds(3600))
            configuration.health = health
        }
        return (configuration, check.errors)
    }
}

extension StallRule {
    /// The same rule with each value replaced by the nearer end of its range.
    func broughtIntoRange() -> (rule: StallRule, errors: [ConfigurationRangeError]) {
        var (rule, check) = (self, RangeCheck())
        check.bring(&rule)
        return (rule, check.errors)
    }
}

/// Brings values into their ranges, and records which of them were out of range.
private struct RangeCheck {
    private(set) var errors: [ConfigurationRangeError] = []

    mutating func bring<Number: FixedWidthInteger>(
        _ value: inout Number,
        _ key: String,
        to range: ClosedRange<Number>
    ) {
        bring(&value, key, to: range) { "\($0)" }
    }

    /// In the unit that the key names.
    mutating func bring(_ value: inout Duration, _ key: String, to range: ClosedRange<Duration>) {
        let unit: Duration = key.hasSuffix("Seconds") ? .seconds(1) : .milliseconds(1)
        bring(&value, key, to: range) { ($0 / unit).configurationText }
    }

    /// A value that is not set stays unset.
    mutating func bring(_ value: inout Duration?, _ key: String, to range: ClosedRange<Duration>) {
        guard var set = value else { return }
        bring(&set, key, to: range)
        value = set
    }

    /// Takes a number of bytes that files give in MiB, from one byte on.
    mutating func bring(megabytes value: inout Int, _ key: String, atMost most: Int) {
        bring(&value, key, to: 1...(most << 20)) { $0 == 1 ? "1" : (Double($0) / Double(1 << 20)).configurationText }
    }

    /// Takes a share of 1 that files give in percent.
    mutating func bring(share value: inout Double, _ key: String) {
        // NaN is in no range.
        if value.isNaN { value = -1 }
        bring(&value, key, to: 1e-6...1) { ($0 * 100).configurationText }
    }

    mutating func bring(_ rule: inout StallRule) {
        bring(&rule.tick, "tickMilliseconds", to: .milliseconds(1) ... .seconds(60))
        bring(&rule.ticks, "ticks", to: 1...10_000)
        if var repeated = rule.repeated {
            bring(&repeated.turns, "repeated.turns", to: 2...1_000)
            bring(&repeated.ticks, "repeated.ticks", to: 1...10_000)
            rule.repeated = repeated
        }
        if var ticks = rule.congested?.ticks {
            bring(&ticks, "congested.ticks", to: 1...10_000)
            rule.congested?.ticks = ticks
        }
    }

    mutating func bring(_ rule: inout RepeatRule) {
        let windows = Duration.zero ... .seconds(86_400)
        bring(&rule.window, "repeats.windowSeconds", to: windows)
        bring(&rule.longestWindow, "repeats.longestWindowSeconds", to: windows)
        // As when the rule is made: only one of the two may have been set since.
        rule.longestWindow = max(rule.longestWindow, rule.window)
        bring(&rule.burst, "repeats.burst", to: 1...100_000)
        if var reports = rule.reportsPerMinute {
            bring(&reports, "repeats.reportsPerMinute", to: 1...100_000)
            rule.reportsPerMinute = reports
        }
        if var bytes = rule.bytesPerMinute {
            bring(megabytes: &bytes, "repeats.megabytesPerMinute", atMost: 100_000)
            rule.bytesPerMinute = bytes
        }
    }

    private mutating func bring<Value: Comparable>(
        _ value: inout Value,
        _ key: String,
        to range: ClosedRange<Value>,
        shown: (Value) -> String
    ) {
        guard !range.contains(value) else { return }
        let error = ConfigurationRangeError(
            key: key,
            value: shown(value),
            range: "\(shown(range.lowerBound)) to \(shown(range.upperBound))"
        )
        errors.append(error)
        value = min(max(value, range.lowerBound), range.upperBound)
    }
}

extension Double {
    /// As it is written in a configuration file: `3000`, `0.0001`.
    package var configurationText: String {
        // Multiplying a share by 100 is not exact, and would print many nines.
        let number = (self * 1e6).rounded() / 1e6
        return Int(exactly: number).map(String.init) ?? "\(number)"
    }
}
