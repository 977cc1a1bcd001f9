import Locking
import Synchronization

extension EventRunLoop: CustomStringConvertible {
    /// What the loop is doing and what is in its modes (R62). Any thread; each mode is as it was at one moment.
    public var snapshot: LoopSnapshot {
        let (modes, common) = table.withLock { table in (table.modes, table.commonModes.map(\.name)) }
        let (pulse, now) = (heartbeat.pulse, MonotonicInstant.now)
        return LoopSnapshot(
            loop: label,
            thread: thread?.id,
            timeNanoseconds: now.nanoseconds,
            phase: "\(pulse.phase)",
            turn: pulse.turn,
            currentMode: pulse.phase == .idle ? nil : modeName(at: pulse.modeIndex),
            commonModes: common,
            queuedBlocks: blocks.queuedCount,
            performRequests: requests.waitingCount,
            beforeWaitingWork: beforeWaiting.count,
            modes: modes.map { $0.snapshot(at: now) }
        )
    }

    /// The snapshot's text: current mode, common modes, and per mode what is in it (R62). Any thread.
    public var description: String { snapshot.description }
}

extension LoopMode {
    fileprivate func snapshot(at now: MonotonicInstant) -> LoopSnapshot.Mode {
        let (sources, descriptors, timers, observers) = contents.withLock { contents in
            (Array(contents.sources.values), contents.descriptors.sources, contents.timers.timers, contents.observers)
        }
        // Outside the lock: the calls below take the items' locks, which come earlier in the lock order.
        return LoopSnapshot.Mode(
            name: name,
            isCommon: isCommon.load(ordering: .acquiring),
            sources: sources.map(\.snapshot).sorted { $0.order < $1.order },
            descriptors: descriptors.map(\.snapshot),
            timers: timers.map { $0.snapshot(at: now) }.sorted { $0.date < $1.date },
            observers: observers.map(\.snapshot)
        )
    }
}

extension LoopSnapshot.Timer {
    fileprivate var date: UInt64 { nextFireNanoseconds ?? .max }
}

extension EventSource: CustomStringConvertible {
    var snapshot: LoopSnapshot.Source { .init(order: order, isSignalled: isSignalled, isValid: isValid) }

    /// For example `source, order 0, signalled`.
    public var description: String { snapshot.description }
}

extension DescriptorSource: CustomStringConvertible {
    var snapshot: LoopSnapshot.Descriptor {
        .init(
            descriptor: descriptor,
            interest: interest.names,
            isEdgeTriggered: isEdgeTriggered,
            isValid: isValid
        )
    }

    /// For example `descriptor 7, readable hangUp`.
    public var description: String { snapshot.description }
}

extension DescriptorSource.Events: CustomStringConvertible {
    var names: [String] {
        let names: [(Self, String)] = [
            (.readable, "readable"), (.writable, "writable"), (.hangUp, "hangUp"), (.error, "error"),
            (.closed, "closed"),
        ]
        return names.filter { contains($0.0) }.map(\.1)
    }

    /// The names, separated by spaces.
    public var description: String { names.joined(separator: " ") }
}

extension EventTimer: CustomStringConvertible {
    func snapshot(at now: MonotonicInstant) -> LoopSnapshot.Timer {
        let date = nextFireDate
        return LoopSnapshot.Timer(
            order: order,
            nextFireNanoseconds: date == .distantFuture ? nil : date.nanoseconds,
            firesInNanoseconds: date == .distantFuture ? nil : now.duration(to: date).nanoseconds,
            intervalNanoseconds: interval.nanoseconds,
            toleranceNanoseconds: tolerance.nanoseconds,
            followsWallClock: followsWallClock,
            isValid: isValid
        )
    }

    /// For example `timer, order 0, fires in 0.25 seconds, every 1.0 seconds, tolerance 0.1 seconds, by the wall clock`.
    public var description: String { snapshot(at: .now).description }
}

extension LoopObserver: CustomStringConvertible {
    var snapshot: LoopSnapshot.Observer {
        .init(order: order, activities: activities.names, repeats: repeats, isValid: isValid)
    }

    /// For example `observer, order 0, entry exit, once`.
    public var description: String { snapshot.description }
}

extension EventRunLoop.Activity: CustomStringConvertible {
    var names: [String] {
        LoopPhase.allCases.filter { $0.activity.map(contains) ?? false }.map { "\($0)" }
    }

    /// The names, separated by spaces.
    public var description: String { names.joined(separator: " ") }
}
