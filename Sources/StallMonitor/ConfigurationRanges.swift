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

/// An option that is a whole number in a configuration file.
package struct NumericOption: Sendable {
    /// The key, without the scope; its parts are separated by dots: `limits.reports`.
    package let key: String
    /// In the unit that the key names.
    package let range: ClosedRange<Int>

    private init(_ key: String, _ range: ClosedRange<Int>) { (self.key, self.range) = (key, range) }

    /// The unit of a duration.
    package var unit: Duration { key.hasSuffix("Milliseconds") ? .milliseconds(1) : .seconds(1) }

    package static let tick = Self("tickMilliseconds", 1...60_000)
    package static let ticks = Self("ticks", 1...10_000)
    package static let repeatedTurns = Self("repeated.turns", 2...1_000)
    package static let repeatedTicks = Self("repeated.ticks", 1...10_000)
    package static let congestedTicks = Self("congested.ticks", 1...10_000)
    package static let reportsJobsLongerThan = Self("reportsJobsLongerThanMilliseconds", 1...600_000)
    package static let startupGrace = Self("startupGraceMilliseconds", 0...3_600_000)
    package static let abortsAfter = Self("abortsAfterSeconds", 1...86_400)
    package static let captureSignal = Self("captureSignal", 1...64)
    package static let reports = Self("limits.reports", 1...1_000_000)
    package static let runs = Self("limits.runs", 1...1_000_000)
    package static let directorySize = Self("limits.megabytes", 1...1 << 20)
    package static let reportsInMemory = Self("memory.reports", 1...1_000_000)
    package static let memory = Self("memory.megabytes", 1...1 << 20)
    package static let processorBurst = Self("cost.processorBurstMilliseconds", 1...600_000)
    package static let heldBurst = Self("cost.heldBurstMilliseconds", 1...600_000)
    package static let window = Self("repeats.windowSeconds", 0...86_400)
    package static let longestWindow = Self("repeats.longestWindowSeconds", 0...86_400)
    package static let reportsPerMinute = Self("repeats.reportsPerMinute", 1...100_000)
    package static let burst = Self("repeats.burst", 1...100_000)
    package static let bytesPerMinute = Self("repeats.megabytesPerMinute", 1...100_000)
    package static let healthPort = Self("health.port", 0...65_535)
    package static let failsAfter = Self("health.failsAfterSeconds", 1...3_600)
}

extension StallMonitor.Configuration {
    /// The values out of their ranges. A mistake in the configuration ends neither the server nor the monitoring:
    /// ``StallMonitor/start(_:watching:onEvent:)-(_,WatchSelection,_)`` reports it as a fault (`configurationOutOfRange`), and uses
    /// the nearer end of the range instead. It uses nil instead of an ``abortsAfter`` of zero or less, and the default instead of a
    /// ``captureSignal`` out of range.
    public var rangeErrors: [ConfigurationRangeError] { broughtIntoRange().errors }

    /// The same configuration with each value replaced by the nearer end of its range.
    func broughtIntoRange() -> (configuration: Self, errors: [ConfigurationRangeError]) {
        var (configuration, check) = (self, RangeCheck())
        check.bring(&configuration.rule)
        check.bring(&configuration.reportsJobsLongerThan, .reportsJobsLongerThan)
        check.bring(&configuration.abortsAfter, .abortsAfter)
        // Whoever sets no time may mean: never. The nearer end would end the process at its first stall of a second.
        if let abortsAfter, abortsAfter <= .zero { configuration.abortsAfter = nil }
        check.bring(&configuration.startupGrace, .startupGrace)
        check.bring(&configuration.limits.reports, .reports)
        check.bring(&configuration.limits.runs, .runs)
        check.bring(megabytes: &configuration.limits.bytes, .directorySize)
        check.bring(&configuration.memory.reports, .reportsInMemory)
        check.bring(megabytes: &configuration.memory.bytes, .memory)
        check.bring(share: &configuration.cost.processorShare, "cost.processorPercent")
        check.bring(share: &configuration.cost.heldShare, "cost.heldPercent")
        check.bring(&configuration.cost.processorBurst, .processorBurst, from: .microseconds(1))
        check.bring(&configuration.cost.heldBurst, .heldBurst, from: .microseconds(1))
        check.bring(&configuration.repeats)
        check.bring(&configuration.captureSignal, .captureSignal)
        // The nearer ends belong to others: SIGHUP, and the last real-time signal.
        if configuration.captureSignal != captureSignal { configuration.captureSignal = Self.defaultCaptureSignal }
        if var health {
            check.bring(&health.port, .healthPort)
            check.bring(&health.failsAfter, .failsAfter)
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

    mutating func bring<Number: FixedWidthInteger>(_ value: inout Number, _ option: NumericOption) {
        let range = Number(option.range.lowerBound)...Number(option.range.upperBound)
        bring(&value, option.key, to: range) { "\($0)" }
    }

    /// - Parameter least: The shortest time, if that is not a whole number of the key's unit.
    mutating func bring(_ value: inout Duration, _ option: NumericOption, from least: Duration? = nil) {
        let (unit, range) = (option.unit, option.range)
        bring(&value, option.key, to: (least ?? unit * range.lowerBound)...unit * range.upperBound) {
            ($0 / unit).configurationText
        }
    }

    /// A value that is not set stays unset.
    mutating func bring(_ value: inout Duration?, _ option: NumericOption) {
        guard var set = value else { return }
        bring(&set, option)
        value = set
    }

    /// Takes a number of bytes that files give in MiB, from one byte on.
    mutating func bring(megabytes value: inout Int, _ option: NumericOption) {
        bring(&value, option.key, to: 1...(option.range.upperBound << 20)) {
            $0 == 1 ? "1" : (Double($0) / Double(1 << 20)).configurationText
        }
    }

    /// Takes a share of 1 that files give in percent.
    mutating func bring(share value: inout Double, _ key: String) {
        // NaN is in no range.
        if value.isNaN { value = -1 }
        bring(&value, key, to: 1e-6...1) { ($0 * 100).configurationText }
    }

    mutating func bring(_ rule: inout StallRule) {
        bring(&rule.tick, .tick)
        bring(&rule.ticks, .ticks)
        if var repeated = rule.repeated {
            bring(&repeated.turns, .repeatedTurns)
            bring(&repeated.ticks, .repeatedTicks)
            rule.repeated = repeated
        }
        if var ticks = rule.congested?.ticks {
            bring(&ticks, .congestedTicks)
            rule.congested?.ticks = ticks
        }
    }

    mutating func bring(_ rule: inout RepeatRule) {
        bring(&rule.window, .window)
        bring(&rule.longestWindow, .longestWindow)
        // As when the rule is made: only one of the two may have been set since.
        rule.longestWindow = max(rule.longestWindow, rule.window)
        bring(&rule.burst, .burst)
        if var reports = rule.reportsPerMinute {
            bring(&reports, .reportsPerMinute)
            rule.reportsPerMinute = reports
        }
        if var bytes = rule.bytesPerMinute {
            bring(megabytes: &bytes, .bytesPerMinute)
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
