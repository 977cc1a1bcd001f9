/// The name of a file of the store: `stall-ULID.json` or `run-ULID.json`. Sorted by age.
public struct ReportFileName: Hashable, Sendable {
    public enum Content: String, Sendable {
        case stall, run
    }

    public let content: Content
    public let id: ULID

    public init(_ content: Content, _ id: ULID) { (self.content, self.id) = (content, id) }

    /// Nil for any other name.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[1].hasSuffix(".json"), let content = Content(rawValue: String(parts[0])),
            let id = ULID(String(parts[1].dropLast(5)))
        else { return nil }
        self.init(content, id)
        guard description == text else { return nil }
    }
}

extension ReportFileName: CustomStringConvertible {
    public var description: String { "\(content.rawValue)-\(id).json" }
}

extension ReportFileName: Comparable {
    public static func < (left: ReportFileName, right: ReportFileName) -> Bool {
        left.id == right.id ? left.content.rawValue < right.content.rawValue : left.id < right.id
    }
}
