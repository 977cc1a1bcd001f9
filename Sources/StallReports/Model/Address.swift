/// A machine address, or a distance between two. In JSON a string like `"0x7f12"`: JSON's numbers lose bits above 2^53.
public struct Address: Hashable, Sendable {
    /// In bytes. All 64 bits may be used.
    public var rawValue: UInt64

    /// Accepts any number, mapped or not.
    public init(_ rawValue: UInt64) { self.rawValue = rawValue }

    /// Parses `0x` and one to sixteen hexadecimal digits; anything else is nil.
    public init?(_ text: some StringProtocol) {
        let digits = text.dropFirst(2)
        guard text.hasPrefix("0x"), (1...16).contains(digits.utf8.count), digits.utf8.first != UInt8(ascii: "+"),
            let value = UInt64(digits, radix: 16)
        else { return nil }
        rawValue = value
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

extension Address: Codable {
    /// From a JSON string of `0x` and 1 to 16 hexadecimal digits; throws for anything else, also for a number.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText(as: "an address like 0x7f12") { Address($0) }
    }

    /// Writes a JSON string: `description`.
    public func encode(to encoder: any Encoder) throws {
        try encoder.encodeText(description)
    }
}
