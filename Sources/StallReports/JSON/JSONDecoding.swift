// Decodes the model from a parsed text, as Foundation's decoder does; a test compares them. Where a value is wrong, its path is found from
// the text, so that paths cost nothing while values are right.

/// The decoder of one value.
struct JSONDecoding: Decoder {
    let json: ParsedJSON
    let node: Int

    init(_ json: ParsedJSON, at node: Int = 0) { (self.json, self.node) = (json, node) }

    var codingPath: [any CodingKey] { json.path(of: node) }
    var userInfo: [CodingUserInfoKey: Any] { json.userInfo }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard json[node].kind == .object else { throw json.mismatch([String: Any].self, at: node) }
        return KeyedDecodingContainer(JSONMembersDecoding(json, node))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard json[node].kind == .array else { throw json.mismatch([Any].self, at: node) }
        return JSONElementsDecoding(json, node)
    }

    func singleValueContainer() -> any SingleValueDecodingContainer { self }
}

// As in the encoder's containers, the first generic method stands for all those of the standard library's own types.

extension JSONDecoding: SingleValueDecodingContainer {
    func decodeNil() -> Bool { json[node].kind == .null }
    func decode<Value: JSONScalar>(_ type: Value.Type) throws -> Value { try json.scalar(at: node) }
    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try Value(from: self) }
}

private struct JSONMembersDecoding<Key: CodingKey>: KeyedDecodingContainerProtocol {
    private let json: ParsedJSON
    private let object: Int
    /// The members' values, where looking through them for each would take too long: there are many, as in a dictionary, or their names have
    /// escapes or are very long, as no name of the model.
    private let index: [String: Int]?

    init(_ json: ParsedJSON, _ object: Int) {
        (self.json, self.object) = (json, object)
        let isSlow = json[object].count > 64 || json[object].hasEscapes
        index = isSlow ? Dictionary(json.members(of: object)) { first, _ in first } : nil
    }

    var codingPath: [any CodingKey] { json.path(of: object) }

    /// Without those whose names occurred before. Two names can be the same text although their bytes differ: é is one character or two.
    var allKeys: [Key] {
        var names: Set<String> = []
        return json.members(of: object).compactMap { names.insert($0.0).inserted ? Key(stringValue: $0.0) : nil }
    }

    /// The first member of this name: a second one is ignored.
    private func place(_ key: Key) -> Int? {
        let name = key.stringValue
        if let index { return index[name] }
        var node = object + 1
        let end = json.next(after: object)
        while node < end {
            if json.isName(node, name) { return node + 1 }
            node = json.next(after: node + 1)
        }
        return nil
    }

    private func value(_ key: Key) throws -> Int {
        guard let place = place(key) else {
            throw DecodingError.keyNotFound(key, .init(codingPath: codingPath, debugDescription: "no such member"))
        }
        return place
    }

    func contains(_ key: Key) -> Bool { place(key) != nil }
    func decodeNil(forKey key: Key) throws -> Bool { json[try value(key)].kind == .null }

    func decode<Value: JSONScalar>(_ type: Value.Type, forKey key: Key) throws -> Value {
        try json.scalar(at: try value(key))
    }

    func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
        try Value(from: JSONDecoding(json, at: try value(key)))
    }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type,
        forKey key: Key
    ) throws -> KeyedDecodingContainer<Nested> {
        try JSONDecoding(json, at: try value(key)).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try JSONDecoding(json, at: try value(key)).unkeyedContainer()
    }

    func superDecoder(forKey key: Key) throws -> any Decoder { JSONDecoding(json, at: try value(key)) }

    func superDecoder() throws -> any Decoder {
        guard let key = Key(stringValue: "super") else { throw json.mismatch(Key.self, at: object) }
        return try superDecoder(forKey: key)
    }
}

private struct JSONElementsDecoding: UnkeyedDecodingContainer {
    private let json: ParsedJSON
    private let array: Int
    private var node: Int
    private(set) var currentIndex = 0

    init(_ json: ParsedJSON, _ array: Int) { (self.json, self.array, node) = (json, array, array + 1) }

    var codingPath: [any CodingKey] { json.path(of: array) }
    var count: Int? { json[array].count }
    var isAtEnd: Bool { node >= json.next(after: array) }

    /// The next element. It is taken only where it can be decoded.
    private mutating func take<Value>(_ decode: (JSONDecoding) throws -> Value) throws -> Value {
        guard !isAtEnd else {
            throw DecodingError.valueNotFound(
                Value.self,
                .init(codingPath: codingPath, debugDescription: "no more elements")
            )
        }
        let value = try decode(JSONDecoding(json, at: node))
        node = json.next(after: node)
        currentIndex += 1
        return value
    }

    mutating func decodeNil() throws -> Bool {
        guard !isAtEnd, json[node].kind == .null else { return false }
        return try take { _ in true }
    }

    mutating func decode<Value: JSONScalar>(_ type: Value.Type) throws -> Value { try take { try $0.decode(type) } }
    mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try take(Value.init(from:)) }

    mutating func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type
    ) throws -> KeyedDecodingContainer<Nested> { try take { try $0.container(keyedBy: type) } }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
        try take { try $0.unkeyedContainer() }
    }

    mutating func superDecoder() throws -> any Decoder { try take { $0 } }
}

extension ParsedJSON {
    /// - Throws: `DecodingError` with the path of the value, if it is not of the type.
    fileprivate func scalar<Value: JSONScalar>(at node: Int) throws -> Value {
        guard self[node].kind == Value.kind else { throw mismatch(Value.self, at: node) }
        guard let value = Value(self, at: node) else {
            let context = DecodingError.Context(codingPath: path(of: node), debugDescription: "an impossible value")
            throw DecodingError.dataCorrupted(context)
        }
        return value
    }

    fileprivate func mismatch(_ type: Any.Type, at node: Int) -> DecodingError {
        let context = DecodingError.Context(codingPath: path(of: node), debugDescription: "another type")
        return self[node].kind == .null ? .valueNotFound(type, context) : .typeMismatch(type, context)
    }

    /// An object's members, without those whose names are not text.
    fileprivate func members(of object: Int) -> [(String, Int)] {
        var members: [(String, Int)] = []
        var node = object + 1
        while node < next(after: object) {
            if let name = text(of: node) { members.append((name, node + 1)) }
            node = next(after: node + 1)
        }
        return members
    }

    fileprivate func path(of node: Int) -> [any CodingKey] {
        var (keys, node): ([any CodingKey], Int) = ([], node)
        while node > 0 {
            let container = Int(self[node].parent)
            if self[container].kind == .object {
                keys.append(JSONKey(stringValue: text(of: node - 1) ?? ""))
            } else {
                keys.append(JSONKey(intValue: Int(self[node].index)))
            }
            node = container
        }
        return keys.reversed()
    }
}

private struct JSONKey: CodingKey {
    let stringValue: String
    let intValue: Int?

    init(stringValue: String) { (self.stringValue, intValue) = (stringValue, nil) }
    init(intValue: Int) { (stringValue, self.intValue) = ("Index \(intValue)", intValue) }
}
