import Locking

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
    /// - Returns: What changed, and what needs a restart. Empty if the monitor does not run, except that a monitor that is switched off
    ///   needs a restart for `enabled`.
    @discardableResult
    public func reconfigure(_ configuration: Configuration) -> ConfigurationChange {
        guard let engine else {
            // In a fork's child the lock of the configuration may be held forever.
            let isSwitchedOn = generation.isCurrent && configuration.enabled && !self.configuration.enabled
            return ConfigurationChange(needsRestart: isSwitchedOn ? ["enabled"] : [])
        }
        let (wanted, errors) = configuration.broughtIntoRange()
        return settings.withLock { present in
            let (before, different) = (present, Setting.all.filter { $0.isChanged(present, wanted) })
            for setting in different where setting.isLive { setting.copy(&present, wanted) }
            // Under the lock, so that faults, their ends and changes are passed on in the order of the configurations.
            report(errors, engine)
            if different.contains(where: \.isLive) { engine.adopt(present, insteadOf: before) }
            return ConfigurationChange(
                applied: different.filter(\.isLive).map(\.key),
                needsRestart: different.filter { !$0.isLive }.map(\.key)
            )
        }
    }
}

extension StallMonitor {
    /// Reports the values of a configuration that are out of range, and that those of the former one are over. The faults of the former one may
    /// still wait for their handler.
    func report(_ errors: [ConfigurationRangeError], _ engine: Engine) {
        rangeFaults.withLock { faults in
            let new = errors.map { StallMonitorError($0) }
            guard new != faults else { return }
            // All of them end first: the faults of a code are one problem in `health`, which the end of any of them removes.
            for former in faults { engine.notices.add(.mended(former)) }
            for fault in new { engine.notices.add(.fault(fault)) }
            faults = new
        }
    }
}

/// One setting of a configuration.
private struct Setting: Sendable {
    let key: String
    /// Whether it can change while the monitor runs.
    let isLive: Bool
    let isChanged: @Sendable (_ old: StallMonitor.Configuration, _ new: StallMonitor.Configuration) -> Bool
    /// Gives the first configuration the second one's value.
    let copy: @Sendable (inout StallMonitor.Configuration, StallMonitor.Configuration) -> Void

    private init<Value: Equatable & Sendable>(
        _ key: String,
        isLive: Bool,
        _ path: any WritableKeyPath<StallMonitor.Configuration, Value> & Sendable
    ) {
        (self.key, self.isLive) = (key, isLive)
        isChanged = { $0[keyPath: path] != $1[keyPath: path] }
        copy = { $0[keyPath: path] = $1[keyPath: path] }
    }

    static let all: [Setting] = [
        Setting("tickMilliseconds", isLive: true, \.rule.tick),
        Setting("ticks", isLive: true, \.rule.ticks),
        Setting("repeated", isLive: true, \.rule.repeated),
        Setting("congested", isLive: true, \.rule.congested),
        Setting("repeats", isLive: true, \.repeats),
        Setting("limits", isLive: true, \.limits),
        Setting("abortsAfterSeconds", isLive: true, \.abortsAfter),
        Setting("capturesAllThreads", isLive: true, \.capturesAllThreads),
        Setting("countsTracedStalls", isLive: true, \.countsTracedStalls),
        Setting("followsLocks", isLive: true, \.followsLocks),
        Setting("enabled", isLive: false, \.enabled),
        Setting("directory", isLive: false, \.directory),
        Setting("memory", isLive: false, \.memory),
        Setting("cost", isLive: false, \.cost),
        Setting("service", isLive: false, \.service),
        Setting("ownCode", isLive: false, \.ownCode),
        Setting("captureSignal", isLive: false, \.captureSignal),
        Setting("startupGraceMilliseconds", isLive: false, \.startupGrace),
        Setting("keepsLiveRecord", isLive: false, \.keepsLiveRecord),
        Setting("reportsJobsLongerThanMilliseconds", isLive: false, \.reportsJobsLongerThan),
        Setting("health", isLive: false, \.health),
        Setting("metadata", isLive: false, \.metadata),
    ]
}
