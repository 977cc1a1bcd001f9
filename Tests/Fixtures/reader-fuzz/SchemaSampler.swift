import Foundation

/// Makes random documents that a JSON Schema permits: every choice of optional parts, numbers at their ends, hostile
/// strings.
///
/// Supports the parts of JSON Schema that `config/` uses.
struct SchemaSampler {
    private let root: Shape
    /// Identifiers that occur repeatedly, so that documents refer to each other.
    private let identifiers: [String]

    init(schema: [String: Any], at pointer: String = "#") throws {
        var reader = SchemaReader(schema)
        root = try reader.shape(at: pointer)
        var dice = Dice(seed: 1)
        identifiers = (0..<12).map { _ in Self.identifier(&dice) }
    }

    /// One document as JSON. The same for equal dice.
    ///
    /// - Parameters:
    ///   - isShort: no long arrays, so that a million documents can be read by every reader within an hour.
    ///   - fixed: the values of some members of the outermost object, as JSON.
    func document(_ dice: inout Dice, isShort: Bool = false, fixed: [String: String] = [:]) -> [UInt8] {
        let share = dice.pick(isShort ? [1, 1, 2, 3, 5, 9, 10] : [1, 5, 5, 9, 10])
        let limit = dice.pick(isShort ? [60, 100, 150, 300] : [500, 500, 1000, 4000])
        var writer = Writer(identifiers: identifiers, share: share, limit: limit, isShort: isShort, fixed: fixed)
        writer.put(root, "", &dice, depth: 0)
        return writer.bytes
    }

    fileprivate static func identifier(_ dice: inout Dice) -> String {
        let letters = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
        return String([letters[dice.below(8)]] + (0..<25).map { _ in dice.pick(letters) })
    }
}

/// What a schema permits in one place.
private final class Shape {
    struct Member {
        let key: String
        let shape: Shape
        let isRequired: Bool
        /// As it is written, with the colon.
        let text: [UInt8]
        /// The other members that must exist if this one does.
        var needs: [Int] = []

        init(key: String, shape: Shape, isRequired: Bool) {
            (self.key, self.shape, self.isRequired) = (key, shape, isRequired)
            text = Array("\"\(key)\":".utf8)
        }
    }

    indirect enum Form {
        case object([Member], others: Shape?, unless: Condition?)
        case array(Shape, ClosedRange<Int>)
        case text(pattern: String?, examples: [String], lengths: ClosedRange<Int>)
        case integer(ClosedRange<Int64>)
        case number
        case boolean
        case constant(String)
        case choice([String])
    }

    var form = Form.boolean
}

private struct SchemaReader {
    private let schema: [String: Any]
    private var known: [String: Shape] = [:]

    struct Unknown: Error, CustomStringConvertible {
        let description: String
    }

    init(_ schema: [String: Any]) { self.schema = schema }

    mutating func shape(at pointer: String) throws -> Shape {
        if let shape = known[pointer] { return shape }
        let shape = Shape()
        known[pointer] = shape
        var place: Any? = schema
        for part in pointer.split(separator: "/").dropFirst() { place = (place as? [String: Any])?[String(part)] }
        guard let found = place as? [String: Any] else { throw Unknown(description: "\(pointer) is not in the schema") }
        shape.form = try form(found)
        return shape
    }

    private mutating func shape(_ part: [String: Any]) throws -> Shape {
        if let reference = part["$ref"] as? String { return try shape(at: reference) }
        let shape = Shape()
        shape.form = try form(part)
        return shape
    }

    private mutating func form(_ part: [String: Any]) throws -> Shape.Form {
        if let constant = part["const"] as? String { return .constant(constant) }
        if let choices = part["enum"] as? [String] { return .choice(choices) }
        switch part["type"] as? String {
        case "object": return try object(part)
        case "array":
            guard let items = part["items"] as? [String: Any] else {
                throw Unknown(description: "an array of anything")
            }
            return .array(try shape(items), (part["minItems"] as? Int ?? 0)...(part["maxItems"] as? Int ?? 4000))
        case "string":
            return .text(
                pattern: part["pattern"] as? String,
                examples: part["examples"] as? [String] ?? [],
                lengths: (part["minLength"] as? Int ?? 0)...(part["maxLength"] as? Int ?? .max)
            )
        case "integer":
            let least = (part["minimum"] as? NSNumber)?.int64Value ?? .min
            return .integer(least...((part["maximum"] as? NSNumber)?.int64Value ?? .max))
        case "number": return .number
        case "boolean": return .boolean
        default: throw Unknown(description: "no type: \(part.keys.sorted())")
        }
    }

    private mutating func object(_ part: [String: Any]) throws -> Shape.Form {
        let required = Set(part["required"] as? [String] ?? [])
        let properties = part["properties"] as? [String: [String: Any]] ?? [:]
        var members: [Shape.Member] = []
        for (key, value) in properties.sorted(by: { $0.key < $1.key }) {
            members.append(.init(key: key, shape: try shape(value), isRequired: required.contains(key)))
        }
        for (key, needs) in part["dependentRequired"] as? [String: [String]] ?? [:] {
            guard let member = members.firstIndex(where: { $0.key == key }) else { continue }
            members[member].needs = needs.compactMap { name in members.firstIndex { $0.key == name } }
        }
        let others = try (part["additionalProperties"] as? [String: Any]).map { try shape($0) }
        return .object(
            members,
            others: others,
            unless: Self.condition(part)
        )
    }

    private static func condition(_ part: [String: Any]) -> Condition? {
        guard let properties = (part["if"] as? [String: [String: [String: Any]]])?["properties"],
            let key = (part["then"] as? [String: [String]])?["required"]?.first
        else { return nil }
        if let state = properties["state"]?["const"] as? String { return .state(state, key: key) }
        let empty = properties.first { $0.value["maxItems"] as? Int == 0 }
        return empty.map { .emptyArray($0.key, key: key) }
    }
}

/// What makes a key required: `if` this holds, `then` the key exists.
enum Condition {
    /// The document has this state.
    case state(String, key: String)
    /// This array exists and is empty.
    case emptyArray(String, key: String)
}

private struct Writer {
    let identifiers: [String]
    /// This many of ten optional members are written.
    let share: Int
    let fixed: [String: String]
    var bytes: [UInt8] = []
    private var avoidedState: String?

    /// Members that the model stores in 32 bits. Larger numbers are refused, and such a document tests nothing more.
    private static let narrow: Set = [
        "pid", "id", "number", "abandoned_by", "exit_status", "thread_id",
    ]
    /// After this many bytes no array is begun: most documents are small, so that there are many.
    private let limit: Int
    private let isShort: Bool

    init(identifiers: [String], share: Int, limit: Int, isShort: Bool, fixed: [String: String]) {
        (self.identifiers, self.share, self.limit, self.fixed) = (identifiers, share, limit, fixed)
        self.isShort = isShort
    }

    mutating func put(_ shape: Shape, _ key: String, _ dice: inout Dice, depth: Int) {
        switch shape.form {
        case .constant(let text): put(text)
        case .choice(let texts): put(dice.pick(texts))
        case .boolean: bytes += (dice.happens(1, in: 2) ? "true" : "false").utf8
        case .number:
            bytes += dice.pick(["0.1", "1", "5e-324", "1.7e308", "99.99", "1e9", "123456789012345678", "0.5"]).utf8
        case .integer(let range):
            let most = Self.narrow.contains(key) ? min(range.upperBound, Int64(Int32.max)) : range.upperBound
            let least = Self.narrow.contains(key) ? max(range.lowerBound, Int64(Int32.min)) : range.lowerBound
            bytes += String(dice.integer(in: least...most)).utf8
        case .text(let pattern, let examples, let lengths):
            put(text(pattern, examples, lengths, isState: key == "state" && depth == 1, &dice))
        case .array(let items, let count): putArray(items, count, key, &dice, depth)
        case .object(let members, let others, let unless): putObject(members, others, unless, &dice, depth)
        }
    }

    private mutating func putArray(
        _ items: Shape,
        _ range: ClosedRange<Int>,
        _ key: String,
        _ dice: inout Dice,
        _ depth: Int
    ) {
        let wish = bytes.count > limit ? 0 : dice.pick([0, 1, 1, 2, 3, isShort ? 4 : 5, dice.below(isShort ? 8 : 40)])
        var count = min(max(wish, range.lowerBound), range.upperBound)
        // A few elements repeatedly: recursions, and duplicates of what should be unique.
        let isCyclic = dice.happens(1, in: 4)
        if isCyclic, !isShort, dice.happens(1, in: 20) { count = min(dice.below(600), range.upperBound) }
        var seen: [Range<Int>] = []
        bytes.append(UInt8(ascii: "["))
        for index in 0..<count {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            if isCyclic, seen.count > 2, bytes.count < limit * 4 {
                bytes += bytes[seen[index % 3]]
            } else {
                let start = bytes.count
                put(items, key, &dice, depth: depth + 1)
                seen.append(start..<bytes.count)
            }
        }
        bytes.append(UInt8(ascii: "]"))
    }

    private mutating func putObject(
        _ members: [Shape.Member],
        _ others: Shape?,
        _ unless: Condition?,
        _ dice: inout Dice,
        _ depth: Int
    ) {
        var isThere = members.map { $0.isRequired || dice.below(10) < share }
        for index in members.indices where isThere[index] {
            for other in members[index].needs { isThere[other] = true }
        }
        if depth == 0 {
            avoidedState = nil
            if case .state(let state, let key) = unless, !has(key, members, isThere) { avoidedState = state }
        }
        bytes.append(UInt8(ascii: "{"))
        var isFirst = true
        for (index, member) in members.enumerated() where isThere[index] {
            if !isFirst { bytes.append(UInt8(ascii: ",")) }
            isFirst = false
            bytes += member.text
            if depth == 0, !fixed.isEmpty, let value = fixed[member.key] {
                bytes += value.utf8
            } else {
                put(member.shape, member.key, &dice, depth: depth + 1)
            }
            guard case .emptyArray(member.key, let key) = unless, !has(key, members, isThere),
                bytes[bytes.count - 2] == UInt8(ascii: "["), bytes[bytes.count - 1] == UInt8(ascii: "]")
            else { continue }
            bytes += ",\"\(key)\":\"none\"".utf8
        }
        if let others { putOthers(others, &dice, depth, isFirst) }
        bytes.append(UInt8(ascii: "}"))
    }

    private func has(_ key: String, _ members: [Shape.Member], _ isThere: [Bool]) -> Bool {
        members.firstIndex { $0.key == key }.map { isThere[$0] } ?? false
    }

    private mutating func putOthers(_ shape: Shape, _ dice: inout Dice, _ depth: Int, _ isFirst: Bool) {
        var isFirst = isFirst
        let keys = (0..<dice.below(4)).map { _ in
            dice.happens(1, in: 2) ? HostileText.any(&dice) : dice.pick(["stalls", "blocked", "repeat"])
        }
        for key in Set(keys).sorted() {
            if !isFirst { bytes.append(UInt8(ascii: ",")) }
            isFirst = false
            put(key)
            bytes.append(UInt8(ascii: ":"))
            put(shape, "", &dice, depth: depth + 1)
        }
    }

    private func text(
        _ pattern: String?,
        _ examples: [String],
        _ lengths: ClosedRange<Int>,
        isState: Bool,
        _ dice: inout Dice
    ) -> String {
        guard let pattern else {
            let known = examples.filter { !isState || $0 != avoidedState }
            if !known.isEmpty, dice.happens(3, in: 4) { return dice.pick(known) }
            if lengths.upperBound == 1 { return dice.pick(["S", "D", "R", "Z", "\u{1B}", "é", "数"]) }
            let text = HostileText.any(&dice)
            return text.unicodeScalars.count < lengths.lowerBound || text == avoidedState ? "x" : text
        }
        if pattern.hasPrefix("^[0-7]") {
            return dice.happens(3, in: 4) ? dice.pick(identifiers) : SchemaSampler.identifier(&dice)
        }
        if pattern.hasPrefix("^[0-9]{4}-") { return time(&dice) }
        if pattern.hasPrefix("^0x") { return "0x" + String(dice.next() >> UInt64(dice.below(64)), radix: 16) }
        if pattern.hasPrefix("^v[0-9]") {
            let digits = String(UInt64(dice.below(5)) &* 0x1234_5678_9abc, radix: 16)
            return "v\(dice.pick(["1", "2", "999"])):" + String(repeating: "0", count: 16 - digits.count) + digits
        }
        return dice.pick(["00", "aa11bb22", String(repeating: "0f", count: 1 + dice.below(64))])
    }

    private func time(_ dice: inout Dice) -> String {
        let padded = { (value: Int, width: Int) in
            let digits = String(value)
            return String(repeating: "0", count: max(0, width - digits.count)) + digits
        }
        let year = dice.pick([0, 1, 1969, 1970, 2026, 2026, 2026, 2262, 2263, 9999])
        let date = "\(padded(year, 4))-\(padded(1 + dice.below(12), 2))-\(padded(1 + dice.below(28), 2))"
        let (hour, minute) = (padded(dice.below(24), 2), padded(dice.below(60), 2))
        let (second, fraction) = (padded(dice.below(60), 2), padded(dice.below(1_000_000_000), 9))
        return "\(date)T\(hour):\(minute):\(second).\(fraction)Z"
    }

    private mutating func put(_ text: String) {
        bytes.append(UInt8(ascii: "\""))
        defer { bytes.append(UInt8(ascii: "\"")) }
        if text.utf8.allSatisfy({ $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }) {
            bytes += text.utf8
            return
        }
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
            case 0..<0x20: bytes += ((byte < 0x10 ? "\\u000" : "\\u00") + String(byte, radix: 16)).utf8
            default: bytes.append(byte)
            }
        }
    }
}
