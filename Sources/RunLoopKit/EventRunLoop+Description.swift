internal import Synchronization

extension EventRunLoop: CustomStringConvertible {
    /// The loop's state for a person who debugs: current mode, common modes, and per mode what is in it (R62). Any thread; each mode is
    /// as it was at one moment.
    public var description: String {
        let (modes, common) = table.withLock { table in (table.modes, table.commonModes.map(\.name)) }
        let queued = requests.waitingCount > 0 ? "  queued: \(requests.waitingCount) perform request\n" : ""
        let head = "EventRunLoop \(label): \(heartbeat.pulse.phase) in \(currentMode?.name ?? "no mode"), "
        return head + "common modes: \(common.joined(separator: ", "))\n" + queued
            + modes.map(\.summary).joined(separator: "\n")
    }
}

extension LoopMode {
    fileprivate var summary: String {
        let (sources, descriptors, timers, observers) = contents.withLock { contents in
            (Array(contents.sources.values), contents.descriptors.sources, contents.timers.timers, contents.observers)
        }
        // Outside the lock: the descriptions take the items' locks, which come before it.
        let lines: [String] =
            sources.sorted { $0.order < $1.order }.map(\.description) + descriptors.map(\.description)
            + timers.sorted { $0.nextFireDate < $1.nextFireDate }.map(\.description) + observers.map(\.description)
        let title = "  mode \(name)" + (isCommon.load(ordering: .acquiring) ? ", common" : "")
        return ([title] + lines.map { "    " + $0 }).joined(separator: "\n")
    }
}

extension EventSource: CustomStringConvertible {
    /// For example `source, order 0, signalled`.
    public var description: String {
        "source, order \(order)" + (isSignalled ? ", signalled" : "") + (isValid ? "" : ", invalid")
    }
}

extension DescriptorSource: CustomStringConvertible {
    /// For example `descriptor 7, readable hangUp`.
    public var description: String {
        "descriptor \(descriptor), \(interest)" + (isEdgeTriggered ? ", edge-triggered" : "")
            + (isValid ? "" : ", invalid")
    }
}

extension DescriptorSource.Events: CustomStringConvertible {
    /// The names, separated by spaces.
    public var description: String {
        let names: [(Self, String)] = [
            (.readable, "readable"), (.writable, "writable"), (.hangUp, "hangUp"), (.error, "error"),
            (.closed, "closed"),
        ]
        return names.filter { contains($0.0) }.map(\.1).joined(separator: " ")
    }
}

extension EventTimer: CustomStringConvertible {
    /// For example `timer, order 0, fires in 0.25 seconds, every 1.0 seconds`.
    public var description: String {
        "timer, order \(order), fires in \(MonotonicInstant.now.duration(to: nextFireDate))"
            + (repeats ? ", every \(interval)" : "") + (isValid ? "" : ", invalid")
    }
}

extension LoopObserver: CustomStringConvertible {
    /// For example `observer, order 0, entry exit, once`.
    public var description: String {
        "observer, order \(order), \(activities)" + (repeats ? "" : ", once") + (isValid ? "" : ", invalid")
    }
}

extension EventRunLoop.Activity: CustomStringConvertible {
    /// The names, separated by spaces.
    public var description: String {
        LoopPhase.allCases.filter { $0.activity.map(contains) ?? false }.map { "\($0)" }.joined(separator: " ")
    }
}
