// The names below are the document's, both written and read.
extension LoopSnapshot {
    /// The document that the type's comment describes, on one line.
    public var json: String { JSONValue.object(members).text }

    private var members: KeyValuePairs<CodingKeys, JSONValue> {
        [
            .loop: .string(loop),
            .thread: thread.map { .number($0) } ?? .null,
            .timeNanoseconds: .number(timeNanoseconds),
            .phase: .string(phase),
            .turn: .number(turn),
            .currentMode: currentMode.map { .string($0) } ?? .null,
            .commonModes: .strings(commonModes),
            .queuedBlocks: .number(queuedBlocks),
            .performRequests: .number(performRequests),
            .beforeWaitingWork: .number(beforeWaitingWork),
            .modes: .array(modes.map { .object($0.members) }),
        ]
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
    fileprivate var members: KeyValuePairs<CodingKeys, JSONValue> {
        [
            .name: .string(name),
            .isCommon: .bool(isCommon),
            .sources: .array(sources.map { .object($0.members) }),
            .descriptors: .array(descriptors.map { .object($0.members) }),
            .timers: .array(timers.map { .object($0.members) }),
            .observers: .array(observers.map { .object($0.members) }),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case name
        case isCommon = "common"
        case sources, descriptors, timers, observers
    }
}

extension LoopSnapshot.Source {
    fileprivate var members: KeyValuePairs<CodingKeys, JSONValue> {
        [
            .order: .number(order),
            .isSignalled: .bool(isSignalled),
            .isValid: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case order
        case isSignalled = "signalled"
        case isValid = "valid"
    }
}

extension LoopSnapshot.Descriptor {
    fileprivate var members: KeyValuePairs<CodingKeys, JSONValue> {
        [
            .descriptor: .number(descriptor),
            .interest: .strings(interest),
            .isEdgeTriggered: .bool(isEdgeTriggered),
            .isValid: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case descriptor, interest
        case isEdgeTriggered = "edge_triggered"
        case isValid = "valid"
    }
}

extension LoopSnapshot.Timer {
    fileprivate var members: KeyValuePairs<CodingKeys, JSONValue> {
        [
            .order: .number(order),
            .nextFireNanoseconds: nextFireNanoseconds.map { .number($0) } ?? .null,
            .firesInNanoseconds: firesInNanoseconds.map { .number($0) } ?? .null,
            .intervalNanoseconds: .number(intervalNanoseconds),
            .toleranceNanoseconds: .number(toleranceNanoseconds),
            .followsWallClock: .bool(followsWallClock),
            .isValid: .bool(isValid),
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
    fileprivate var members: KeyValuePairs<CodingKeys, JSONValue> {
        [
            .order: .number(order),
            .activities: .strings(activities),
            .repeats: .bool(repeats),
            .isValid: .bool(isValid),
        ]
    }

    enum CodingKeys: String, CodingKey {
        case order, activities, repeats
        case isValid = "valid"
    }
}
