import StallReports

/// The positions of the members of a JSON object in its text, found in one pass, without recursion, and without parsing their
/// values: reading a few members of many documents takes a tenth of a parser's time.
///
/// It does not validate: it accepts everything that a parser accepts, and some of what a parser rejects. Anything not written
/// plainly (an escape in a string, a fraction, a duplicate name) is ``Irregular``, and left to a parser.
struct JSONMembers {
    /// The object needs a parser.
    struct Irregular: Error {}

    private struct Member {
        let name: Range<Int>
        let value: Range<Int>
    }

    private let bytes: [UInt8]
    private let members: [Member]

    /// Nil if it is not a complete object, or something follows it.
    init?(_ bytes: [UInt8]) { self.init(bytes, bytes.indices) }

    private init?(_ bytes: [UInt8], _ range: Range<Int>) {
        var cursor = JSONCursor(bytes: bytes, place: range.lowerBound, end: range.upperBound)
        var members: [Member] = []
        guard cursor.take("{") else { return nil }
        if !cursor.take("}") {
            members.reserveCapacity(32)
            repeat {
                guard let name = cursor.takeString(), cursor.take(":"), let value = cursor.takeValue() else {
                    return nil
                }
                members.append(Member(name: name, value: value))
            } while cursor.take(",")
            guard cursor.take("}") else { return nil }
        }
        guard cursor.isAtEnd else { return nil }
        (self.bytes, self.members) = (bytes, members)
    }

    /// Nil if there is no such member, or it is null.
    private func place(_ name: StaticString) throws -> Range<Int>? {
        var found: Range<Int>?
        for member in members where member.name.count == name.utf8CodeUnitCount && isName(member.name, name) {
            guard found == nil else { throw Irregular() }
            found = member.value
        }
        return found.flatMap { bytes[$0].elementsEqual("null".utf8) ? nil : $0 }
    }

    private func isName(_ range: Range<Int>, _ name: StaticString) -> Bool {
        name.withUTF8Buffer { text in unsafe zip(range, text).allSatisfy { bytes[$0] == $1 } }
    }

    /// A member that is an object.
    func object(_ name: StaticString) throws -> JSONMembers? {
        guard let place = try place(name) else { return nil }
        guard let members = JSONMembers(bytes, place) else { throw Irregular() }
        return members
    }

    func text(_ name: StaticString) throws -> String? {
        guard let place = try place(name) else { return nil }
        let quote = UInt8(ascii: "\"")
        guard place.count >= 2, bytes[place.lowerBound] == quote, bytes[place.upperBound - 1] == quote else {
            throw Irregular()
        }
        let content = bytes[place.lowerBound + 1..<place.upperBound - 1]
        guard content.allSatisfy({ $0 >= 0x20 && $0 != UInt8(ascii: "\\") }),
            let text = String(validating: content, as: UTF8.self), text.hasFewMarks
        else { throw Irregular() }
        return text
    }

    /// A whole number of up to 18 digits.
    func number(_ name: StaticString) throws -> Int64? {
        guard let place = try place(name) else { return nil }
        let isNegative = bytes[place.lowerBound] == UInt8(ascii: "-")
        let digits = bytes[place].dropFirst(isNegative ? 1 : 0)
        guard (1...18).contains(digits.count), digits.count == 1 || digits.first != UInt8(ascii: "0") else {
            throw Irregular()
        }
        var number: Int64 = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { throw Irregular() }
            number = number * 10 + Int64(digit - UInt8(ascii: "0"))
        }
        return isNegative ? -number : number
    }

    func flag(_ name: StaticString) throws -> Bool? {
        guard let place = try place(name) else { return nil }
        if bytes[place].elementsEqual("true".utf8) { return true }
        if bytes[place].elementsEqual("false".utf8) { return false }
        throw Irregular()
    }

    /// The value that a text represents. Throws ``Irregular`` if it represents none.
    func value<Value>(_ name: StaticString, _ parse: (String) -> Value?) throws -> Value? {
        guard let text = try text(name) else { return nil }
        guard let value = parse(text) else { throw Irregular() }
        return value
    }

    /// A member's JSON, for a parser.
    func json(_ name: StaticString) throws -> [UInt8]? { try place(name).map { Array(bytes[$0]) } }

    /// The object's JSON without the members with these names.
    func json(without names: [StaticString]) -> [UInt8] {
        var kept = [UInt8(ascii: "{")]
        for member in members {
            let isLeftOut = names.contains { $0.utf8CodeUnitCount == member.name.count && isName(member.name, $0) }
            if isLeftOut { continue }
            if kept.count > 1 { kept.append(UInt8(ascii: ",")) }
            kept += bytes[member.name.lowerBound - 1..<member.value.upperBound]
        }
        kept.append(UInt8(ascii: "}"))
        return kept
    }
}

/// A value that must exist.
func required<Value>(_ value: Value?) throws -> Value {
    guard let value else { throw JSONMembers.Irregular() }
    return value
}

/// Reads a JSON text step by step. White space before each token is skipped.
private struct JSONCursor {
    let bytes: [UInt8]
    var place: Int
    let end: Int

    var isAtEnd: Bool {
        mutating get {
            passBlanks()
            return place == end
        }
    }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        passBlanks()
        guard place < end, bytes[place] == UInt8(ascii: character) else { return false }
        place += 1
        return true
    }

    /// The text between the quotation marks.
    mutating func takeString() -> Range<Int>? {
        passBlanks()
        let start = place + 1
        guard place < end, bytes[place] == UInt8(ascii: "\""), passString() else { return nil }
        return start..<place - 1
    }

    /// A complete value of any type.
    mutating func takeValue() -> Range<Int>? {
        passBlanks()
        guard place < end else { return nil }
        let start = place
        switch bytes[place] {
        case UInt8(ascii: "\""): return passString() ? start..<place : nil
        case UInt8(ascii: "{"), UInt8(ascii: "["): return passBrackets() ? start..<place : nil
        default:
            while place < end, !Self.endsLiteral(bytes[place]) { place += 1 }
            return place > start ? start..<place : nil
        }
    }

    private mutating func passBlanks() { while place < end, Self.isBlank(bytes[place]) { place += 1 } }

    private mutating func passString() -> Bool {
        place += 1
        while place < end {
            switch bytes[place] {
            case UInt8(ascii: "\\"): place += 2
            case UInt8(ascii: "\""):
                place += 1
                return true
            default: place += 1
            }
        }
        return false
    }

    private mutating func passBrackets() -> Bool {
        var depth = 0
        while place < end {
            switch bytes[place] {
            case UInt8(ascii: "\""):
                guard passString() else { return false }
                continue
            case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            default: break
            }
            place += 1
            if depth == 0 { return true }
        }
        return false
    }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 }

    private static func endsLiteral(_ byte: UInt8) -> Bool {
        isBlank(byte) || byte == UInt8(ascii: ",") || byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]")
    }
}
