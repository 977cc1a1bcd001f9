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
