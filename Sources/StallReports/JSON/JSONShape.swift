/// What a look at the brackets of a JSON text tells, in one pass without recursion and without memory.
///
/// It is no validator: it keeps hostile nesting away from a recursive parser, and tells a file that was cut off from one
/// that is wrong.
enum JSONShape: Hashable {
    case whole
    /// Empty, or it ends inside a string or an open bracket.
    case cutOff
    case tooDeep

    init(of bytes: [UInt8], maximumDepth: Int) {
        var depth = 0
        var inString = false
        var escaped = false
        var sawBracket = false
        for byte in bytes {
            if inString {
                inString = escaped || byte != UInt8(ascii: "\"")
                escaped = !escaped && byte == UInt8(ascii: "\\")
                continue
            }
            switch byte {
            case UInt8(ascii: "\""): inString = true
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                (depth, sawBracket) = (depth + 1, true)
                if depth > maximumDepth {
                    self = .tooDeep
                    return
                }
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            default: break
            }
        }
        self = inString || depth > 0 || (!sawBracket && bytes.allSatisfy(Self.isBlank)) ? .cutOff : .whole
    }

    /// White space, and the zero bytes that a crash can leave where data was not yet on disk.
    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == 0 || byte == UInt8(ascii: " ") || (0x09...0x0d).contains(byte)
    }
}
