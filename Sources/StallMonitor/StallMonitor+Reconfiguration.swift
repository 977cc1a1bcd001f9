import Locking
import StallDetection
import StallReports

/// The result of giving a running monitor another configuration.
public struct ConfigurationChange: Hashable, Sendable {
    /// The settings with new values, by their keys in a file: `ticks`, `limits`.
    public var applied: [String]
    /// The settings whose new values a running monitor cannot apply. They keep the old values until the server is restarted.
    public var needsRestart: [String]

    /// Creates one, by default without changes.
    public init(applied: [String] = [], needsRestart: [String] = []) {
        (self.applied, self.needsRestart) = (applied, needsRestart)
    }

    /// The first parts of the keys that a running monitor can apply.
    package static let liveKeys: Set<String> = Set(Setting.all.filter(\.isLive).map(\.key))

    /// Whether the new configuration was the same as the old one.
    public var isEmpty: Bool { applied.isEmpty && needsRestart.isEmpty }
}

extension StallMonitor {
    /// Applies another configuration. Any thread; returns at once.
    ///
    /// These settings change: the rule of all watches without their own rule (`tickMilliseconds`, `ticks`, `repeated`,
    /// `congested`), `repeats`, `limits`, `abortsAfterSeconds`, `capturesAllThreads`, `countsTracedStalls` and `followsLocks`. An
    /// ongoing stall is judged to its end by the rule by which it began. All other settings keep their values, because threads,
    /// files or ports depend on them; `details` is not compared. A value out of its range is replaced as at the start, and
    /// reported as a fault, which is over with the next configuration without such a value.
    ///
    /// - Returns: What changed, and what needs a restart. Empty if the monitor does not run.
    @discardableResult
    public func reconfigure(_ configuration: Configuration) -> ConfigurationChange {
        guard let engine else { return ConfigurationChange() }
        let (wanted, errors) = configuration.broughtIntoRange()
        report(errors, engine)
        return settings.withLock { present in
            let (before, different) = (present, Setting.all.filter { $0.isChanged((present, wanted)) })
            present.takeLiveSettings(of: wanted)
            // Under the lock, so that the parts get changes in the order in which they are made.
            if different.contains(where: \.isLive) { engine.adopt(present, insteadOf: before) }
            return ConfigurationChange(
                applied: different.filter(\.isLive).map(\.key),
                needsRestart: different.filter { !$0.isLive }.map(\.key)
            )
        }
    }
}

extension StallMonitor {
    /// Reports the values of a configuration that are out of range, or that those of the former one were corrected. The fault of the former one
    /// may still wait for its handler.
    func report(_ errors: [ConfigurationRangeError], _ engine: Engine) {
        // Under the lock, so that a fault and its end are reported in the order of the configurations.
        rangeFault.withLock { fault in
            for error in errors { engine.notices.add(.fault(StallMonitorError(error))) }
            let former = fault
            fault = errors.last.map { StallMonitorError($0) }
            if errors.isEmpty, let former { engine.notices.add(.mended(former)) }
        }
    }
}

/// The part of a configuration that the watchdog needs.
struct WatchSettings: Sendable {
    let rule: StallRule
    let countsTraced: Bool
    let capturesAllThreads: Bool
    let followsLocks: Bool
    let abortsAfter: Duration?
    private let abortPatience: Duration

    init(_ configuration: StallMonitor.Configuration) {
        rule = configuration.rule
        countsTraced = configuration.countsTracedStalls
        capturesAllThreads = configuration.capturesAllThreads
        followsLocks = configuration.followsLocks
        (abortsAfter, abortPatience) = (configuration.abortsAfter, configuration.abortPatience)
    }

    var lastResort: LastResort? { abortsAfter.map { LastResort(limit: $0, abortPatience: abortPatience) } }
}

extension StallMonitor.Configuration {
    fileprivate mutating func takeLiveSettings(of other: Self) {
        (rule, repeats, limits, abortsAfter) = (other.rule, other.repeats, other.limits, other.abortsAfter)
        capturesAllThreads = other.capturesAllThreads
        countsTracedStalls = other.countsTracedStalls
        followsLocks = other.followsLocks
    }
}

extension StallRule {
    /// The same for a task pool: for a pool in which jobs begin and end, their lengths do not matter.
    var forPools: StallRule { StallRule(tick: tick, ticks: ticks, repeated: nil, congested: nil) }

    /// The rule for the single jobs of a pool. The tick is longer if the most ticks that are allowed would be less than `length`.
    func forJobs(longerThan length: Duration) -> StallRule {
        let tick = max(tick, length / 10_000)
        let ticks = Int(min(max((length / tick).rounded(.up), 1), 10_000))
        return StallRule(tick: tick, ticks: ticks, repeated: nil, congested: nil)
    }
}

/// One setting of a configuration.
private struct Setting: Sendable {
    typealias Pair = (old: StallMonitor.Configuration, new: StallMonitor.Configuration)

    let key: String
    /// Whether it can change while the monitor runs.
    let isLive: Bool
    let isChanged: @Sendable (Pair) -> Bool

    private static func live(_ key: String, _ isChanged: @escaping @Sendable (Pair) -> Bool) -> Setting {
        Setting(key: key, isLive: true, isChanged: isChanged)
    }

    private static func fixed(_ key: String, _ isChanged: @escaping @Sendable (Pair) -> Bool) -> Setting {
        Setting(key: key, isLive: false, isChanged: isChanged)
    }

    static let all: [Setting] = [
        .live("tickMilliseconds") { $0.old.rule.tick != $0.new.rule.tick },
        .live("ticks") { $0.old.rule.ticks != $0.new.rule.ticks },
        .live("repeated") { $0.old.rule.repeated != $0.new.rule.repeated },
        .live("congested") { $0.old.rule.congested != $0.new.rule.congested },
        .live("repeats") { $0.old.repeats != $0.new.repeats },
        .live("limits") { $0.old.limits != $0.new.limits },
        .live("abortsAfterSeconds") { $0.old.abortsAfter != $0.new.abortsAfter },
        .live("capturesAllThreads") { $0.old.capturesAllThreads != $0.new.capturesAllThreads },
        .live("countsTracedStalls") { $0.old.countsTracedStalls != $0.new.countsTracedStalls },
        .live("followsLocks") { $0.old.followsLocks != $0.new.followsLocks },
        .fixed("enabled") { $0.old.enabled != $0.new.enabled },
        .fixed("directory") { $0.old.directory != $0.new.directory },
        .fixed("memory") { $0.old.memory != $0.new.memory },
        .fixed("cost") { $0.old.cost != $0.new.cost },
        .fixed("service") { $0.old.service != $0.new.service },
        .fixed("ownCode") { $0.old.ownCode != $0.new.ownCode },
        .fixed("captureSignal") { $0.old.captureSignal != $0.new.captureSignal },
        .fixed("startupGraceMilliseconds") { $0.old.startupGrace != $0.new.startupGrace },
        .fixed("keepsLiveRecord") { $0.old.keepsLiveRecord != $0.new.keepsLiveRecord },
        .fixed("reportsJobsLongerThanMilliseconds") { $0.old.reportsJobsLongerThan != $0.new.reportsJobsLongerThan },
        .fixed("health") { $0.old.health != $0.new.health },
        .fixed("metadata") { $0.old.metadata != $0.new.metadata },
    ]
}
