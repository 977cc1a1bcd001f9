// The keys below are used for both writing and reading the document.
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

/// A JSON document to be written, with its members in insertion order. RunLoopKit imports no JSON library.
enum JSONValue: ExpressibleByDictionaryLiteral {
    case null
    case bool(Bool)
    /// A sign and digits: integers of any width.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object([(String, JSONValue)])

    init(dictionaryLiteral members: (String, JSONValue)...) { self = .object(members) }

    static func number(_ value: some BinaryInteger) -> JSONValue { .number(String(value)) }
    /// With the string values of the keys as names.
    static func object(_ members: KeyValuePairs<some CodingKey, JSONValue>) -> JSONValue {
        .object(members.map { ($0.key.stringValue, $0.value) })
    }

    static func strings(_ values: [String]) -> JSONValue { .array(values.map { .string($0) }) }

    /// The document on one line (RFC 8259), without spaces.
    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): value ? "true" : "false"
        case .number(let digits): digits
        case .string(let value): JSONValue.quoted(value)
        case .array(let values): "[" + values.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { "\(JSONValue.quoted($0.0)):\($0.1.text)" }.joined(separator: ",") + "}"
        }
    }

    private static func quoted(_ value: String) -> String {
        var text = "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\t": text += "\\t"
            case _ where scalar.value < 0x20:
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }
}
