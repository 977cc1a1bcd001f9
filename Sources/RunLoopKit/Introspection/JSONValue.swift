/// A JSON document that can be written, in the order in which it was put together. RunLoopKit imports nothing that could do it.
enum JSONValue: ExpressibleByDictionaryLiteral {
    case null
    case bool(Bool)
    /// Digits and a sign: integers of any width.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object([(String, JSONValue)])

    init(dictionaryLiteral members: (String, JSONValue)...) { self = .object(members) }

    static func number(_ value: some BinaryInteger) -> JSONValue { .number(String(value)) }
    /// With the names that the keys stand for.
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
