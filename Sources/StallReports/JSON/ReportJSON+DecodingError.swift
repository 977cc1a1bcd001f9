extension ReportJSON {
    /// Where and how a document departs from the model, in words of the model alone.
    static func text(for error: DecodingError) -> String {
        switch error {
        case .keyNotFound(let key, let context): "\(path(context.codingPath + [key])) is missing"
        case .valueNotFound(_, let context): "\(path(context.codingPath)) is null"
        case .typeMismatch(_, let context): "\(path(context.codingPath)) has the wrong type"
        case .dataCorrupted(let context) where context.codingPath.isEmpty: "not JSON, or a number in it is out of range"
        case .dataCorrupted(let context): "\(path(context.codingPath)) has an impossible value"
        @unknown default: "not decodable"
        }
    }

    /// Like `stacks[0].frames[3].address`. Below a dictionary the keys are the writer's own, and are left out.
    private static func path(_ keys: [any CodingKey]) -> String {
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
