extension Decoder {
    /// Decodes a value that JSON holds as a string of a fixed form.
    func decodeText<Value>(as form: String, _ parse: (String) -> Value?) throws -> Value {
        let container = try singleValueContainer()
        guard let value = parse(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "expected \(form)")
        }
        return value
    }
}

extension Encoder {
    /// Encodes a value that JSON holds as a string.
    func encodeText(_ text: String) throws {
        var container = singleValueContainer()
        try container.encode(text)
    }
}
