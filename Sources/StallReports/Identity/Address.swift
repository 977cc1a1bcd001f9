/// A machine address, or a distance between two. In JSON a string like `"0x7f12"`: JSON's numbers lose bits above 2^53.
public struct Address: Hashable, Sendable {
    /// In bytes. All 64 bits may be used.
    public var rawValue: UInt64

    /// Creates an address from any number, mapped or not.
    public init(_ rawValue: UInt64) { self.rawValue = rawValue }

    /// Parses `0x` and one to sixteen hexadecimal digits; anything else is nil.
    public init?(_ text: some StringProtocol) {
        // Byte by byte: a report has hundreds.
        var (value, count): (UInt64, Int) = (0, 0)
        for byte in text.utf8 {
            defer { count += 1 }
            if count < 2 {
                guard byte == (count == 0 ? UInt8(ascii: "0") : UInt8(ascii: "x")) else { return nil }
            } else {
                guard count < 18, let digit = Self.digit(byte) else { return nil }
                value = value << 4 | digit
            }
        }
        guard count > 2 else { return nil }
        rawValue = value
    }

    private static func digit(_ byte: UInt8) -> UInt64? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt64(byte - UInt8(ascii: "0"))
        case UInt8(ascii: "a")...UInt8(ascii: "f"): UInt64(byte - UInt8(ascii: "a") + 10)
        case UInt8(ascii: "A")...UInt8(ascii: "F"): UInt64(byte - UInt8(ascii: "A") + 10)
        default: nil
        }
    }
}

extension Address: Comparable {
    /// Compares as unsigned numbers.
    public static func < (left: Address, right: Address) -> Bool { left.rawValue < right.rawValue }
}

extension Address: ExpressibleByIntegerLiteral {
    /// For literals such as `0x7f12`.
    public init(integerLiteral value: UInt64) { rawValue = value }
}

extension Address: CustomStringConvertible {
    /// `0x` and hexadecimal digits: lower case, no leading zeros.
    public var description: String { "0x" + String(rawValue, radix: 16) }
}

extension Address: TextForm {
    static let form = "an address like 0x7f12"
    static func parse(_ text: String) -> Address? { Address(text) }
}

extension Address: Codable {
    /// Decodes a JSON string of `0x` and 1 to 16 hexadecimal digits; throws for anything else, including numbers.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText()
    }

    /// Writes a JSON string: `description`.
    public func encode(to encoder: any Encoder) throws {
        try encoder.encodeText(description)
    }
}
