/// The name of a file of the store: `stall-ULID.json` or `run-ULID.json`. Sorted by age.
public struct ReportFileName: Hashable, Sendable {
    /// The kind of document in the file. The raw value is the name's first part.
    public enum Content: String, Sendable {
        case stall, run
    }

    /// According to the name: the file's contents may differ.
    public let content: Content
    /// A file whose document has another id is rejected as `malformed`.
    public let id: ULID

    /// The name under which the store keeps the document with this id.
    public init(_ content: Content, _ id: ULID) { (self.content, self.id) = (content, id) }

    /// The name of a document, from its contents.
    ///
    /// - Throws: The reason why it is neither a report nor a run record.
    package init(of json: [UInt8]) throws(ReportError) {
        do throws(ReportError) {
            self.init(.stall, try StallOutline(checking: json).id)
        } catch  where error.code == .unsupportedSchema {
            self.init(.run, try RunRecord(json: json).id)
        }
    }

    /// Nil for any other name.
    public init?(_ text: String) {
        guard let hyphen = text.utf8.firstIndex(of: UInt8(ascii: "-")),
            let content = Content(rawValue: String(text[..<hyphen])),
            let id = ULID(String(Substring(text.utf8[hyphen...].dropFirst().dropLast(".json".utf8.count))))
        else { return nil }
        self.init(content, id)
        // Rejects other characters at the skipped positions.
        guard description == text else { return nil }
    }
}

extension ReportFileName: CustomStringConvertible {
    /// `stall-01J8Z3V5Q6W7X8Y9Z0A1B2C3D4.json`, without a directory.
    public var description: String { "\(content.rawValue)-\(id).json" }
}

extension ReportFileName: Comparable {
    /// The older one is less; for the same id, the run.
    public static func < (left: ReportFileName, right: ReportFileName) -> Bool {
        left.id == right.id ? left.content.rawValue < right.content.rawValue : left.id < right.id
    }
}
