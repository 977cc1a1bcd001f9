internal import FoundationEssentials

extension ReportJSON {
    /// Decodes a value that names no schema, within the limits that hold for documents.
    package static func decode<Value: Decodable>(_ bytes: [UInt8]) throws(ReportError) -> Value {
        switch JSONShape(of: bytes, maximumDepth: maximumDepth) {
        case .whole: break
        case .cutOff: throw ReportError(.torn)
        case .tooDeep: throw ReportError(.tooDeep)
        }
        do {
            return try JSONDecoder().decode(Value.self, from: Data(bytes))
        } catch {
            throw ReportError(.malformed, detail: (error as? DecodingError).map(text(for:)))
        }
    }
}
