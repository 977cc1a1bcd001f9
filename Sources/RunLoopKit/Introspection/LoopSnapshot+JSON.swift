// The names below are the document's, both written and read.
extension LoopSnapshot {
    /// The document that the type's comment describes, on one line.
    public var json: String { value.text }

    private var value: JSONValue {
        func member(_ key: CodingKeys, _ value: JSONValue) -> (String, JSONValue) { (key.rawValue, value) }
        return .object([
            member(.loop, .string(loop)),
            member(.thread, thread.map { .number($0) } ?? .null),
            member(.timeNanoseconds, .number(timeNanoseconds)),
            member(.phase, .string(phase)),
            member(.turn, .number(turn)),
            member(.currentMode, currentMode.map { .string($0) } ?? .null),
            member(.commonModes, .strings(commonModes)),
            member(.queuedBlocks, .number(queuedBlocks)),
            member(.performRequests, .number(performRequests)),
            member(.beforeWaitingWork, .number(beforeWaitingWork)),
            member(.modes, .array(modes.map(\.value))),
        ])
    }

    enum CodingKeys: String, CodingKey {
        case loop, thread
        case timeNanoseconds = "time_ns"
        case phase, turn
        case currentMode = "current_mode"
        case commonModes = "common_modes"
        case queuedBlocks = "queued_blocks"
        case performRequests = "perform_requests"
        case beforeWaitingWork = "before_waiting_work"
        case modes
    }
}

extension LoopSnapshot.Mode {
    fileprivate var value: JSONValue {
        [
            CodingKeys.name.rawValue: .string(name),
            CodingKeys.isCommon.rawValue: .bool(isCommon),
            CodingKeys.sources.rawValue: .array(sources.map(\.value)),
            CodingKeys.descriptors.rawValue: .array(descriptors.map(\.value)),
            CodingKeys.timers.rawValue: .array(timers.map(\.value)),
            CodingKeys.observers.rawValue: .array(observers.map(\.value)),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case name
        case isCommon = "common"
        case sources, descriptors, timers, observers
    }
}

extension LoopSnapshot.Source {
    fileprivate var value: JSONValue {
        [
            CodingKeys.order.rawValue: .number(order),
            CodingKeys.isSignalled.rawValue: .bool(isSignalled),
            CodingKeys.isValid.rawValue: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case order
        case isSignalled = "signalled"
        case isValid = "valid"
    }
}

extension LoopSnapshot.Descriptor {
    fileprivate var value: JSONValue {
        [
            CodingKeys.descriptor.rawValue: .number(descriptor),
            CodingKeys.interest.rawValue: .strings(interest),
            CodingKeys.isEdgeTriggered.rawValue: .bool(isEdgeTriggered),
            CodingKeys.isValid.rawValue: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case descriptor, interest
        case isEdgeTriggered = "edge_triggered"
        case isValid = "valid"
    }
}

extension LoopSnapshot.Timer {
    fileprivate var value: JSONValue {
        [
            CodingKeys.order.rawValue: .number(order),
            CodingKeys.nextFireNanoseconds.rawValue: nextFireNanoseconds.map { .number($0) } ?? .null,
            CodingKeys.firesInNanoseconds.rawValue: firesInNanoseconds.map { .number($0) } ?? .null,
            CodingKeys.intervalNanoseconds.rawValue: .number(intervalNanoseconds),
            CodingKeys.toleranceNanoseconds.rawValue: .number(toleranceNanoseconds),
            CodingKeys.followsWallClock.rawValue: .bool(followsWallClock),
            CodingKeys.isValid.rawValue: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case order
        case nextFireNanoseconds = "next_fire_ns"
        case firesInNanoseconds = "fires_in_ns"
        case intervalNanoseconds = "interval_ns"
        case toleranceNanoseconds = "tolerance_ns"
        case followsWallClock = "wall_clock"
        case isValid = "valid"
    }
}

extension LoopSnapshot.Observer {
    fileprivate var value: JSONValue {
        [
            CodingKeys.order.rawValue: .number(order),
            CodingKeys.activities.rawValue: .strings(activities),
            CodingKeys.repeats.rawValue: .bool(repeats),
            CodingKeys.isValid.rawValue: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case order, activities, repeats
        case isValid = "valid"
    }
}
