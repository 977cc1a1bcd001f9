/// Says which stalls are the same: equal on every host, in every run, and in every build that keeps the functions' names, whatever
/// became of lines, addresses and optimisation.
///
/// A version and sixteen hexadecimal digits: `v2:8a0d3d4acbfa9be8`. Made by ``make(kind:frames:modules:executable:source:)``, which
/// documents what goes in. Those of other versions are read and written, and are equal to none of this one's.
public struct Fingerprint: Hashable, Sendable {
    /// The whole text, with its version.
    public let rawValue: String

    /// Of those made here. `v1` went by the symbols as they were, so each way of compiling a function was another one.
    static let version = "v2"

    /// Nil unless it is a version (`v` and digits), a colon, and sixteen lower-case hexadecimal digits.
    public init?(rawValue: String) {
        let parts = rawValue.utf8.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].first == UInt8(ascii: "v"), (2...4).contains(parts[0].count),
            parts[0].dropFirst().allSatisfy(Self.decimalDigits.contains), parts[1].count == 16,
            parts[1].allSatisfy({ Self.decimalDigits.contains($0) || Self.hexLetters.contains($0) })
        else { return nil }
        self.rawValue = rawValue
    }

    init(digest: UInt64) {
        let digits = String(digest, radix: 16)
        rawValue = "\(Self.version):" + String(repeating: "0", count: 16 - digits.utf8.count) + digits
    }

    private static let decimalDigits = UInt8(ascii: "0")...UInt8(ascii: "9")
    private static let hexLetters = UInt8(ascii: "a")...UInt8(ascii: "f")
}

extension Fingerprint: CustomStringConvertible {
    /// The whole text, as in JSON.
    public var description: String { rawValue }
}

extension Fingerprint: Codable {
    /// From a JSON string that ``init(rawValue:)`` takes; throws for anything else.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText(as: "a fingerprint like v1:0123456789abcdef") { Fingerprint(rawValue: $0) }
    }

    /// Writes a JSON string: `rawValue`.
    public func encode(to encoder: any Encoder) throws {
        try encoder.encodeText(rawValue)
    }
}
