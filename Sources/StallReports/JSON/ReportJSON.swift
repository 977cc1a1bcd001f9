/// Encodes and decodes JSON, with limits that are checked before the parser reads the first byte.
public enum ReportJSON {
    /// The deepest accepted nesting. A report needs six levels; the rest is room for unknown additions.
    static let maximumDepth = 64

    /// Decodes `bytes` if their `schema` is `schema`.
    package static func decode<Value: Decodable>(
        _ type: Value.Type,
        schema: String,
        from bytes: [UInt8]
    ) throws(ReportError) -> Value {
        try checkShape(of: bytes)
        do {
            let document = JSONDecoding(try ParsedJSON(bytes))
            let found = try SchemaOnly(from: document).schema
            guard reads(found, as: schema) else {
                // The only text of a document in an error: without it one would not know which version, or which other command, reads it.
                let name = VisibleText.of(found, limit: 60)
                throw ReportError(.unsupportedSchema, detail: "its schema is '\(name)', expected \(schema)")
            }
            return try Value(from: document)
        } catch let error as ReportError {
            throw error
        } catch {
            throw ReportError(.malformed, detail: (error as? DecodingError).map(text(for:)))
        }
    }

    /// Decodes JSON of another program, of which nothing is trusted: no number or name in it takes long or does harm, unlike in Foundation's
    /// `JSONDecoder`. It must be UTF-8, with at most 64 levels of nesting. Any thread.
    ///
    /// - Parameter userInfo: What the type's `init(from:)` finds in its decoder.
    /// - Throws: ``ReportError`` if there are more levels, or it is cut off; `DecodingError` if it is not JSON or not of this type; and what the
    ///   type throws itself.
    public static func decode<Value: Decodable>(
        _ type: Value.Type,
        from bytes: [UInt8],
        userInfo: [CodingUserInfoKey: any Sendable] = [:]
    ) throws -> Value {
        try checkShape(of: bytes)
        return try Value(from: JSONDecoding(try ParsedJSON(bytes, userInfo: userInfo)))
    }

    /// Whether a document with the schema `found` can be read as one of `schema`. This includes a later minor version
    /// (`stall-report/1.2`), which has additional keys, but no key with another meaning.
    package static func reads(_ found: String, as schema: String) -> Bool {
        guard found != schema else { return true }
        guard found.hasPrefix(schema + ".") else { return false }
        let minor = found.utf8.dropFirst(schema.utf8.count + 1)
        return (1...9).contains(minor.count)
            && minor.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    }

    private struct SchemaOnly: Decodable {
        let schema: String
    }
}

/// A document that the store keeps in its own file: it is encoded as one line of JSON, and names its schema.
public protocol JSONDocument: Codable, Hashable, Sendable {
    /// The schema that this version writes and reads.
    static var currentSchema: String { get }
    var id: ULID { get }
}

extension JSONDocument {
    /// Decodes a document's JSON, of any size. Any thread.
    ///
    /// Unknown keys are ignored and unknown names are kept; a missing or wrong value throws `.malformed` with its path.
    public init(json bytes: [UInt8]) throws(ReportError) {
        self = try ReportJSON.decode(Self.self, schema: Self.currentSchema, from: bytes)
    }

    /// The document as one line of JSON with sorted keys and a newline. Any thread.
    public func json() throws(ReportError) -> [UInt8] {
        try ReportJSON.encode(self)
    }
}

extension StallReport: JSONDocument {}
extension RunRecord: JSONDocument {}

extension ReportJSON {
    /// The place and kind of a deviation from the model. Uses only words of the model, never the document's contents.
    static func text(for error: DecodingError) -> String {
        switch error {
        case .keyNotFound(let key, let context): "\(path(context.codingPath + [key])) is missing"
        case .valueNotFound(_, let context): "\(path(context.codingPath)) is null"
        case .typeMismatch(_, let context): "\(path(context.codingPath)) has the wrong type"
        case .dataCorrupted(let context) where context.codingPath.isEmpty: "not JSON"
        case .dataCorrupted(let context): "\(path(context.codingPath)) has an impossible value"
        @unknown default: "not decodable"
        }
    }

    /// For example `stacks[0].frames[3].address`. Below a dictionary the keys are the writer's own, and are left out.
    private static func path(_ keys: [any CodingKey]) -> String {
        guard !keys.isEmpty else { return "the document" }
        var text = ""
        for key in keys {
            if let index = key.intValue {
                text += "[\(index)]"
            } else {
                text += (text.isEmpty ? "" : ".") + key.stringValue
            }
            if ["metadata", "stalls"].contains(key.stringValue) { break }
        }
        return text
    }
}

extension ReportJSON {
    /// Throws if a document is truncated, or so deep that a parser would be at risk.
    package static func checkShape(of bytes: [UInt8]) throws(ReportError) {
        switch JSONShape(of: bytes, maximumDepth: maximumDepth) {
        case .whole: break
        case .cutOff: throw ReportError(.torn)
        case .tooDeep: throw ReportError(.tooDeep)
        }
    }

    /// Decodes a value without a schema, within the limits that apply to documents.
    package static func decode<Value: Decodable>(_ bytes: [UInt8]) throws(ReportError) -> Value {
        try checkShape(of: bytes)
        do {
            return try Value(from: JSONDecoding(ParsedJSON(bytes)))
        } catch {
            throw ReportError(.malformed, detail: (error as? DecodingError).map(text(for:)))
        }
    }
}

/// The result of scanning the brackets of a JSON text, in one pass without recursion and without allocation.
///
/// It does not validate: it keeps hostile nesting away from a recursive parser, and distinguishes a truncated file from an
/// invalid one.
package enum JSONShape: Hashable {
    case whole
    /// Empty, or an object that ends inside a string or an open bracket.
    case cutOff
    case tooDeep

    init(of bytes: [UInt8], maximumDepth: Int) {
        var depth = 0
        var strings = StringScan()
        for byte in bytes where !strings.take(byte) {
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                if depth > maximumDepth {
                    self = .tooDeep
                    return
                }
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            default: break
            }
        }
        let first = bytes.first { !Self.isBlank($0) }
        let isOpenObject = first == UInt8(ascii: "{") && (strings.isInside || depth > 0)
        self = first == nil || isOpenObject ? .cutOff : .whole
    }

    /// The approximate number of values in a JSON text: the memory that its tree takes depends on that, not on its bytes.
    package static func values(in bytes: [UInt8]) -> Int {
        var (count, strings) = (1, StringScan())
        for byte in bytes where !strings.take(byte) {
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: ","): count += 1
            default: break
            }
        }
        return count
    }

    /// White space, and the zero bytes that a crash can leave where data was not yet on disk.
    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == 0 || byte == UInt8(ascii: " ") || (0x09...0x0d).contains(byte)
    }
}

/// Distinguishes bytes in strings from bytes between them.
private struct StringScan {
    private(set) var isInside = false
    private var escaped = false

    /// Whether the next byte belongs to a string, including its quotation marks.
    mutating func take(_ byte: UInt8) -> Bool {
        guard isInside else {
            isInside = byte == UInt8(ascii: "\"")
            return isInside
        }
        isInside = escaped || byte != UInt8(ascii: "\"")
        escaped = !escaped && byte == UInt8(ascii: "\\")
        return true
    }
}
