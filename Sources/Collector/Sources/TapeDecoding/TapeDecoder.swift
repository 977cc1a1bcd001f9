package import StallReports

/// Decodes a document that simdjson parsed, in a fraction of the time of Foundation's `JSONDecoder`.
///
/// What it decodes, the reports' own decoder decodes to an equal value, except that the frames of stacks have no texts here. What it does not
/// decode may still be valid: its only error is ``Irregular``, and the reports' own decoder must then decide, and give the reason. Do not use it
/// for a type that catches an error while it is decoded, and continues. For one thread at a time.
package struct TapeDecoder: Decoder {
    /// The document must be decoded by the reports' own decoder.
    struct Irregular: Error {}

    /// The largest number of members of an object: each is searched among all others.
    static let maximumMembers = 64

    fileprivate let tape: JSONTape
    fileprivate let index: Int

    /// Parses a document, and passes a decoder of it to `work`, which must not keep the decoder.
    ///
    /// - Returns: What `work` returns. Nil if the document must be decoded by the reports' own decoder.
    package static func reading<Value>(_ json: [UInt8], _ work: (TapeDecoder) -> Value?) -> Value? {
        JSONTape.reading(json) { work(TapeDecoder(tape: $0, index: JSONTape.root)) }
    }

    /// Whether the value is a report that the reports' own decoder accepts. False if only that decoder, or this one, can tell. This reads each
    /// value once, and takes a fraction of the time of decoding them.
    package var isReport: Bool { tape.has(.report, index) }

    fileprivate init(tape: JSONTape, index: Int) { (self.tape, self.index) = (tape, index) }

    package var codingPath: [any CodingKey] { [] }
    package var userInfo: [CodingUserInfoKey: Any] { [:] }

    package func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard tape.kind(index) == .object, tape.count(index) <= Self.maximumMembers else { throw Irregular() }
        return KeyedDecodingContainer(TapeMembers(tape: tape, object: index))
    }

    package func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard tape.kind(index) == .array else { throw Irregular() }
        return TapeElements(tape: tape, array: index)
    }

    package func singleValueContainer() -> any SingleValueDecodingContainer { self }
}

// Parts of a document, for a few of them: each is searched among all members.
extension TapeDecoder {
    /// The value of an object's first member of this name. Nil if it is missing or null, or if this is no object.
    package subscript(name: StaticString) -> TapeDecoder? {
        guard tape.kind(index) == .object, let value = tape.member(name, of: index), tape.kind(value) != .null else {
            return nil
        }
        return TapeDecoder(tape: tape, index: value)
    }

    /// A list's elements. Empty if this is no list.
    package var elements: [TapeDecoder] {
        guard tape.kind(index) == .array else { return [] }
        var (elements, element): ([TapeDecoder], Int) = ([], index + 1)
        while element < tape.next(index) - 1 {
            elements.append(TapeDecoder(tape: tape, index: element))
            element = tape.next(element)
        }
        return elements
    }

    /// Nil if it is no text, or one that the reports' own decoder may shorten.
    package var text: String? { try? tape.string(index) }
    /// Nil if it is no whole number of 64 bits.
    package var whole: Int64? { tape.kind(index) == .signed ? Int64(bitPattern: tape.number(index)) : nil }
    /// Nil if it is neither true nor false.
    package var truth: Bool? { try? decode(Bool.self) }
    /// Nil if it is no time.
    package var moment: Timestamp? { text.flatMap { Timestamp(rfc3339: $0) } }
}

extension TapeDecoder: SingleValueDecodingContainer {
    package func decodeNil() -> Bool { tape.kind(index) == .null }

    package func decode(_ type: Bool.Type) throws -> Bool {
        switch tape.kind(index) {
        case .yes: true
        case .no: false
        default: throw Irregular()
        }
    }

    package func decode(_ type: String.Type) throws -> String {
        try tape.string(index)
    }

    package func decode(_ type: Double.Type) throws -> Double {
        let bits = tape.number(index)
        switch tape.kind(index) {
        // What is zero or nearly so is rare: the reports' own decoder rounds it.
        case .fraction where Double(bitPattern: bits).isNormal: return Double(bitPattern: bits)
        case .signed: return Double(Int64(bitPattern: bits))
        case .unsigned: return Double(bits)
        default: throw Irregular()
        }
    }

    package func decode(_ type: Float.Type) throws -> Float { throw Irregular() }

    // A whole number that is written as a fraction is unusual.
    package func decode<Number: FixedWidthInteger & Decodable>(_ type: Number.Type) throws -> Number {
        let bits = tape.number(index)
        switch tape.kind(index) {
        case .signed: if let number = Number(exactly: Int64(bitPattern: bits)) { return number }
        case .unsigned: if let number = Number(exactly: bits) { return number }
        default: break
        }
        throw Irregular()
    }

    package func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try Value(from: self) }
}

/// The members of an object.
private struct TapeMembers<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let tape: JSONTape
    let object: Int

    var codingPath: [any CodingKey] { [] }

    /// Without those whose names occurred before.
    var allKeys: [Key] {
        var (keys, names): ([Key], Set<String>) = ([], [])
        var (name, end) = (object + 1, tape.next(object) - 1)
        while name < end {
            let text = tape.text(name)
            // A long one, which may take long to hash, is refused when its value is decoded.
            let isNew = text.utf8.count > JSONTape.longestName || names.insert(text).inserted
            if isNew, let key = Key(stringValue: text) { keys.append(key) }
            name = tape.next(name + 1)
        }
        return keys
    }

    /// The first member of this name. Nil if there is none.
    private func find(_ key: Key) -> TapeDecoder? {
        guard key.stringValue.utf8.count <= JSONTape.longestName else { return nil }
        return tape.member(key.stringValue, of: object).map { TapeDecoder(tape: tape, index: $0) }
    }

    private func value(_ key: Key) throws -> TapeDecoder {
        guard let value = find(key) else { throw TapeDecoder.Irregular() }
        return value
    }

    /// Nil if it is missing or null.
    private func present(_ key: Key) -> TapeDecoder? {
        guard let value = find(key), !value.decodeNil() else { return nil }
        return value
    }

    func contains(_ key: Key) -> Bool { find(key) != nil }
    func decodeNil(forKey key: Key) throws -> Bool { try value(key).decodeNil() }
    func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try value(key).decode(type) }
    func decode(_ type: String.Type, forKey key: Key) throws -> String { try value(key).decode(type) }
    func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try value(key).decode(type) }
    // The types of which reports have many: the generic way asks Swift's runtime for the type's description each time.
    func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try value(key).decode(type) }
    func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try value(key).decode(type) }
    func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try value(key).decode(type) }
    func decode<Number: FixedWidthInteger & Decodable>(_ type: Number.Type, forKey key: Key) throws -> Number {
        try value(key).decode(type)
    }
    func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
        let value = try value(key)
        if Value.self == [StallReport.Frame].self, let frames = try tape.frames(value.index) as? Value { return frames }
        return try Value(from: value)
    }

    // The protocol's own versions look for the member three times. These are the types of which reports have many.
    func decodeIfPresent(_ type: Bool.Type, forKey key: Key) throws -> Bool? { try present(key)?.decode(type) }
    func decodeIfPresent(_ type: String.Type, forKey key: Key) throws -> String? { try present(key)?.decode(type) }
    func decodeIfPresent(_ type: Int.Type, forKey key: Key) throws -> Int? { try present(key)?.decode(type) }
    func decodeIfPresent(_ type: Int32.Type, forKey key: Key) throws -> Int32? { try present(key)?.decode(type) }
    func decodeIfPresent(_ type: Int64.Type, forKey key: Key) throws -> Int64? { try present(key)?.decode(type) }
    func decodeIfPresent(_ type: UInt64.Type, forKey key: Key) throws -> UInt64? { try present(key)?.decode(type) }
    func decodeIfPresent<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value? {
        guard let value = present(key) else { return nil }
        return try Value(from: value)
    }

    func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type, forKey key: Key) throws
        -> KeyedDecodingContainer<Nested>
    {
        try value(key).container(keyedBy: type)
    }
    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try value(key).unkeyedContainer()
    }
    func superDecoder() throws -> any Decoder { throw TapeDecoder.Irregular() }
    func superDecoder(forKey key: Key) throws -> any Decoder { throw TapeDecoder.Irregular() }
}

/// The elements of an array, one after the other.
private struct TapeElements: UnkeyedDecodingContainer {
    private let tape: JSONTape
    private let end: Int
    private var index: Int
    private(set) var currentIndex = 0

    init(tape: JSONTape, array: Int) { (self.tape, index, end) = (tape, array + 1, tape.next(array) - 1) }

    var codingPath: [any CodingKey] { [] }
    var count: Int? { nil }
    var isAtEnd: Bool { index >= end }

    private mutating func next() throws -> TapeDecoder {
        guard !isAtEnd else { throw TapeDecoder.Irregular() }
        let value = TapeDecoder(tape: tape, index: index)
        index = tape.next(index)
        currentIndex += 1
        return value
    }

    mutating func decodeNil() throws -> Bool {
        guard !isAtEnd, tape.kind(index) == .null else { return false }
        _ = try next()
        return true
    }

    mutating func decode(_ type: Bool.Type) throws -> Bool { try next().decode(type) }
    mutating func decode(_ type: String.Type) throws -> String { try next().decode(type) }
    mutating func decode<Number: FixedWidthInteger & Decodable>(_ type: Number.Type) throws -> Number {
        try next().decode(type)
    }
    mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try Value(from: next()) }
    mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) throws -> KeyedDecodingContainer<Nested>
    {
        try next().container(keyedBy: type)
    }
    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer { try next().unkeyedContainer() }
    mutating func superDecoder() throws -> any Decoder { throw TapeDecoder.Irregular() }
}
