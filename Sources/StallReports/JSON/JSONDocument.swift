/// What the store keeps in a file of its own: encodes to one line of JSON, and names its schema.
public protocol JSONDocument: Codable, Hashable, Sendable {
    /// The schema that this version writes and reads.
    static var currentSchema: String { get }
    var id: ULID { get }
}

extension JSONDocument {
    /// Reads a document's JSON, of any size. Any thread.
    ///
    /// Unknown keys and names are kept out of the way; a missing or wrong value throws `.malformed` with its path.
    public init(json bytes: [UInt8]) throws(ReportError) {
        self = try ReportJSON.decode(Self.self, schema: Self.currentSchema, from: bytes)
    }

    /// One line of JSON with sorted keys, and a line feed. Any thread.
    public func json() throws(ReportError) -> [UInt8] {
        try ReportJSON.encode(self)
    }
}

extension StallReport: JSONDocument {}
extension RunRecord: JSONDocument {}
