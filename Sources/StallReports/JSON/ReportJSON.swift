internal import FoundationEssentials

/// Bytes of JSON to values and back, with limits set before the parser sees the first byte.
package enum ReportJSON {
    /// Deepest nesting accepted. A report needs six levels; unknown additions get room.
    static let maximumDepth = 64

    /// One line, keys sorted, a line feed at the end: several files in a row are valid NDJSON.
    package static func encode(_ value: some Encodable) throws(ReportError) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do {
            return try [UInt8](encoder.encode(value)) + [UInt8(ascii: "\n")]
        } catch {
            throw ReportError(.malformed, detail: "a value could not be encoded")
        }
    }

    /// Decodes `bytes` if their `schema` is `schema`.
    static func decode<Value: Decodable>(
        _ type: Value.Type,
        schema: String,
        from bytes: [UInt8]
    ) throws(ReportError) -> Value {
        switch JSONShape(of: bytes, maximumDepth: maximumDepth) {
        case .whole: break
        case .cutOff: throw ReportError(.torn)
        case .tooDeep: throw ReportError(.tooDeep)
        }
        do {
            let decoder = JSONDecoder()
            let data = Data(bytes)
            guard try decoder.decode(SchemaOnly.self, from: data).schema == schema else {
                throw ReportError(.unsupportedSchema, detail: "expected \(schema)")
            }
            return try decoder.decode(type, from: data)
        } catch let error as ReportError {
            throw error
        } catch {
            throw ReportError(.malformed, detail: (error as? DecodingError).map(text(for:)))
        }
    }

    /// Any JSON, within the same limits.
    static func decodeTree(_ bytes: [UInt8]) throws(ReportError) -> JSONTree {
        switch JSONShape(of: bytes, maximumDepth: maximumDepth) {
        case .whole: break
        case .cutOff: throw ReportError(.torn)
        case .tooDeep: throw ReportError(.tooDeep)
        }
        do {
            return try JSONDecoder().decode(JSONTree.self, from: Data(bytes))
        } catch {
            throw ReportError(.malformed, detail: (error as? DecodingError).map(text(for:)))
        }
    }

    private struct SchemaOnly: Decodable {
        let schema: String
    }
}
