import StallReports

/// Any JSON value, for changing a part of a document without losing the rest.
enum JSONTree: Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    /// A number above the largest signed integer.
    case unsigned(UInt64)
    case number(Double)
    case text(String)
    case array([JSONTree])
    case object([String: JSONTree])

    /// - Parameter document: JSON that was already read as a model, so its depth is limited.
    init(_ document: [UInt8]) throws(ReportError) {
        self = try ReportJSON.decode(document)
    }

    init(encoding value: some Encodable) throws(ReportError) {
        self = try JSONTree(ReportJSON.encode(value))
    }

    /// Null if there is no such member, or this is not an object. Setting has no effect if this is neither an object nor null.
    subscript(key: String) -> JSONTree {
        get { if case .object(let members) = self { members[key] ?? .null } else { .null } }
        set {
            switch self {
            case .object(var members):
                members[key] = newValue
                self = .object(members)
            case .null: self = .object([key: newValue])
            default: break
            }
        }
    }

    subscript(index: Int) -> JSONTree {
        get { if case .array(let elements) = self, elements.indices.contains(index) { elements[index] } else { .null } }
        set {
            guard case .array(var elements) = self, elements.indices.contains(index) else { return }
            elements[index] = newValue
            self = .array(elements)
        }
    }

    /// Removes the member, if there is one.
    mutating func remove(_ key: String) {
        guard case .object(var members) = self else { return }
        members[key] = nil
        self = .object(members)
    }

    /// This object with the other's members, which take precedence.
    func merging(_ other: JSONTree) -> JSONTree {
        guard case .object(let mine) = self, case .object(let others) = other else { return other }
        return .object(mine.merging(others) { $1 })
    }
}

extension JSONTree: Codable {
    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(UInt64.self) {
            self = .unsigned(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .text(value)
        } else if let value = try? container.decode([JSONTree].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSONTree].self))
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .unsigned(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .text(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }
}
