// Encodes the model as JSON on one line, with sorted keys. Foundation's encoder writes the same bytes, which a test holds, but a server that
// has no other use for Foundation would load three megabytes of it for its run record.

/// A value that is being encoded. An array's elements and an object's members are written one after another into one buffer; an object's
/// are brought into order when it is complete.
///
/// For one thread, during one call of `ReportJSON.encode`.
private final class JSONOutput {
    private enum Part {
        /// Complete, in `bytes`.
        case written(Range<Int>)
        /// A container that its encoder may still add to.
        case nested(JSONOutput)
    }

    private enum Form { case value, array, object }

    private var form = Form.object
    private var bytes: [UInt8] = []
    private var parts: [(name: String, part: Part)] = []

    var count: Int { parts.count }

    func beginArray() { form = .array }

    func setValue(_ value: some JSONScalar) throws {
        form = .value
        bytes.removeAll()
        try value.write(to: &bytes)
    }

    func setNull() {
        form = .value
        bytes = Array("null".utf8)
    }

    /// What a value encodes into its place becomes the whole.
    func setValue(_ value: some Encodable) throws { try value.encode(to: JSONEncoding(output: self)) }

    func add(_ value: some JSONScalar, as name: String = "") throws {
        let start = bytes.count
        try value.write(to: &bytes)
        parts.append((name, .written(start..<bytes.count)))
    }

    func add(_ value: some Encodable, as name: String = "") throws {
        let output = JSONOutput()
        try output.setValue(value)
        let start = bytes.count
        output.write(to: &bytes)
        parts.append((name, .written(start..<bytes.count)))
    }

    func addNull(as name: String = "") {
        bytes += "null".utf8
        parts.append((name, .written(bytes.count - 4..<bytes.count)))
    }

    func addNested(as name: String = "") -> JSONOutput {
        let output = JSONOutput()
        parts.append((name, .nested(output)))
        return output
    }

    func write(to text: inout [UInt8]) {
        switch form {
        case .value: text += bytes
        case .array:
            text.append(UInt8(ascii: "["))
            for (index, part) in parts.enumerated() {
                if index > 0 { text.append(UInt8(ascii: ",")) }
                write(part.part, to: &text)
            }
            text.append(UInt8(ascii: "]"))
        case .object:
            text.append(UInt8(ascii: "{"))
            for (index, part) in parts.sorted(by: { $0.name < $1.name }).enumerated() {
                if index > 0 { text.append(UInt8(ascii: ",")) }
                part.name.write(to: &text)
                text.append(UInt8(ascii: ":"))
                write(part.part, to: &text)
            }
            text.append(UInt8(ascii: "}"))
        }
    }

    private func write(_ part: Part, to text: inout [UInt8]) {
        switch part {
        case .written(let range): text += bytes[range]
        case .nested(let output): output.write(to: &text)
        }
    }
}

/// The encoder of one value. It knows no coding path: no error of ours names one.
private struct JSONEncoding: Encoder {
    let output: JSONOutput
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        KeyedEncodingContainer(JSONMembersEncoding<Key>(output: output))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        output.beginArray()
        return JSONElementsEncoding(output: output)
    }

    func singleValueContainer() -> any SingleValueEncodingContainer { self }
}

// In each container the first generic method stands for all those that a protocol requires for the standard library's numbers, `Bool` and
// `String`.

extension JSONEncoding: SingleValueEncodingContainer {
    func encodeNil() { output.setNull() }
    func encode<Value: JSONScalar>(_ value: Value) throws { try output.setValue(value) }
    func encode<Value: Encodable>(_ value: Value) throws { try output.setValue(value) }
}

private struct JSONMembersEncoding<Key: CodingKey>: KeyedEncodingContainerProtocol {
    let output: JSONOutput
    var codingPath: [any CodingKey] { [] }

    func encodeNil(forKey key: Key) { output.addNull(as: key.stringValue) }

    func encode<Value: JSONScalar>(_ value: Value, forKey key: Key) throws {
        try output.add(value, as: key.stringValue)
    }

    func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
        try output.add(value, as: key.stringValue)
    }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type,
        forKey key: Key
    ) -> KeyedEncodingContainer<Nested> {
        JSONEncoding(output: output.addNested(as: key.stringValue)).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
        JSONEncoding(output: output.addNested(as: key.stringValue)).unkeyedContainer()
    }

    func superEncoder() -> any Encoder { JSONEncoding(output: output.addNested(as: "super")) }
    func superEncoder(forKey key: Key) -> any Encoder { JSONEncoding(output: output.addNested(as: key.stringValue)) }
}

private struct JSONElementsEncoding: UnkeyedEncodingContainer {
    let output: JSONOutput
    var codingPath: [any CodingKey] { [] }
    var count: Int { output.count }

    func encodeNil() { output.addNull() }
    func encode<Value: JSONScalar>(_ value: Value) throws { try output.add(value) }
    func encode<Value: Encodable>(_ value: Value) throws { try output.add(value) }

    func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) -> KeyedEncodingContainer<Nested> {
        superEncoder().container(keyedBy: type)
    }

    func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { superEncoder().unkeyedContainer() }
    func superEncoder() -> any Encoder { JSONEncoding(output: output.addNested()) }
}

extension ReportJSON {
    /// Encodes a value as one line with sorted keys and a newline: several files in a row are valid NDJSON.
    package static func encode(_ value: some Encodable) throws(ReportError) -> [UInt8] {
        let output = JSONOutput()
        var text: [UInt8] = []
        do {
            try output.setValue(value)
        } catch {
            throw ReportError(.malformed, detail: "a value could not be encoded")
        }
        output.write(to: &text)
        text.append(UInt8(ascii: "\n"))
        return text
    }
}
