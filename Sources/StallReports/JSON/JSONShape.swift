/// What a look at the brackets of a JSON text tells, in one pass without recursion and without memory.
///
/// It is no validator: it keeps hostile nesting away from a recursive parser, and tells a file that was cut off from one
/// that is wrong.
enum JSONShape: Hashable {
    case whole
    /// Empty, or an object that ends inside a string or an open bracket.
    case cutOff
    case tooDeep

    init(of bytes: [UInt8], maximumDepth: Int) {
        var depth = 0
        var inString = false
        var escaped = false
        for byte in bytes {
            if inString {
                inString = escaped || byte != UInt8(ascii: "\"")
                escaped = !escaped && byte == UInt8(ascii: "\\")
                continue
            }
            switch byte {
            case UInt8(ascii: "\""): inString = true
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
        let isOpenObject = first == UInt8(ascii: "{") && (inString || depth > 0)
        self = first == nil || isOpenObject ? .cutOff : .whole
    }

    /// About how many values there are in a JSON text: what the tree of it takes in memory goes by that, and not by its bytes.
    static func values(in bytes: [UInt8]) -> Int {
        var (count, inString, escaped) = (1, false, false)
        for byte in bytes {
            if inString {
                inString = escaped || byte != UInt8(ascii: "\"")
                escaped = !escaped && byte == UInt8(ascii: "\\")
                continue
            }
            switch byte {
            case UInt8(ascii: "\""): inString = true
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
