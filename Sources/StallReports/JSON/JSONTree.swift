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
        self = try ReportJSON.decodeTree(document)
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

/// The result of scanning the brackets of a JSON text, in one pass without recursion and without allocation.
///
/// It does not validate: it keeps hostile nesting away from a recursive parser, and distinguishes a truncated file from an
/// invalid one.
enum JSONShape: Hashable {
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
    static func values(in bytes: [UInt8]) -> Int {
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
