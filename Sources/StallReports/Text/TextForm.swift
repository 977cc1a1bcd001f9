/// A value that is a string of a fixed form in JSON.
protocol TextForm: Decodable {
    /// For a person who wrote something else.
    static var form: String { get }
    /// Nil if the text has another form.
    static func parse(_ text: String) -> Self?
}

/// A name from a list that may grow: a later version's name is kept and written back unchanged.
///
/// Compare with the static constants of the type; a `switch` over them needs a `default`.
public protocol OpenName: RawRepresentable, Codable, Hashable, Sendable, CustomStringConvertible
where RawValue == String {
    /// Accepts any name, known or not.
    init(rawValue: String)
}

extension OpenName {
    /// As in JSON. From a file it may be any text: show it through ``VisibleText``.
    public var description: String { rawValue }
}

extension Decoder {
    /// Decodes a value that is a string of a fixed form.
    func decodeText<Value: TextForm>() throws -> Value {
        let container = try singleValueContainer()
        guard let value = Value.parse(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "expected \(Value.form)")
        }
        return value
    }
}

// The compiler's own decoding of a structure's members calls these, because they are more specific than the generic ones: asking for a
// string at once takes a third of the time of making a decoder for each value. A report has hundreds.
extension KeyedDecodingContainer {
    func decode<Value: TextForm>(_ type: Value.Type, forKey key: Key) throws -> Value {
        try parse(try decode(String.self, forKey: key), key)
    }

    func decodeIfPresent<Value: TextForm>(_ type: Value.Type, forKey key: Key) throws -> Value? {
        try decodeIfPresent(String.self, forKey: key).map { try parse($0, key) }
    }

    func decode<Name: OpenName>(_ type: Name.Type, forKey key: Key) throws -> Name {
        Name(rawValue: try decode(String.self, forKey: key))
    }

    func decodeIfPresent<Name: OpenName>(_ type: Name.Type, forKey key: Key) throws -> Name? {
        try decodeIfPresent(String.self, forKey: key).map { Name(rawValue: $0) }
    }

    private func parse<Value: TextForm>(_ text: String, _ key: Key) throws -> Value {
        guard let value = Value.parse(text) else {
            throw DecodingError.dataCorruptedError(
                forKey: key,
                in: self,
                debugDescription: "expected \(Value.form)"
            )
        }
        return value
    }
}

extension Encoder {
    /// Encodes a value as a JSON string.
    func encodeText(_ text: String) throws {
        var container = singleValueContainer()
        try container.encode(text)
    }
}
