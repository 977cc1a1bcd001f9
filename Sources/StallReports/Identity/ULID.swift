import Synchronization

/// A sortable identifier: 48 bits of milliseconds since 1970, then 80 random bits (github.com/ulid/spec).
///
/// As text, 26 characters of Crockford's base 32. Text, number and time have the same order.
public struct ULID: Hashable, Sendable {
    /// Time in the upper 48 bits, randomness in the lower 80.
    public let rawValue: UInt128

    /// Creates one from any number.
    public init(rawValue: UInt128) { self.rawValue = rawValue }

    /// The time that it contains, to the millisecond.
    public var timestamp: Timestamp {
        let milliseconds = Int64(rawValue >> 80)
        return Timestamp(seconds: milliseconds / 1000, nanoseconds: milliseconds % 1000 * 1_000_000)
    }

    /// The least id of a moment. Zero for one before 1970.
    init(startOf time: Timestamp) {
        rawValue = UInt128(max(0, time.seconds * 1000 + Int64(time.nanoseconds / 1_000_000))) << 80
    }

    /// Creates an id that is greater than every one that this process made before. Any thread, also in a forked child: it uses no
    /// lock, which another thread of the parent might have held.
    public static func make() -> ULID {
        var known = latest.load(ordering: .relaxed)
        while true {
            var generator = Generator(after: UInt128(known.first) << 64 | UInt128(known.second))
            let next = generator.next(at: .now())
            let words = WordPair(first: UInt(next.rawValue >> 64), second: UInt(truncatingIfNeeded: next.rawValue))
            let (isLatest, other) = latest.compareExchange(expected: known, desired: words, ordering: .relaxed)
            if isLatest { return next }
            known = other
        }
    }

    private static let latest = Atomic(WordPair(first: 0, second: 0))
}

extension ULID {
    /// Makes ULIDs that only grow: within a millisecond, or after the clock was set back, by adding a random step to the last.
    public struct Generator<Randomness: RandomNumberGenerator & Sendable>: Sendable {
        private var randomness: Randomness
        fileprivate var last: UInt128 = 0

        /// Independent of other generators: ids are guaranteed to grow only within one.
        public init(randomness: Randomness) { self.randomness = randomness }

        /// The next id. The random part for a new millisecond starts in its lower half, so that increments cannot overflow it.
        public mutating func next(at now: Timestamp) -> ULID {
            let start = ULID(startOf: now).rawValue
            if start >> 80 > last >> 80 {
                let random = UInt128(randomness.next() as UInt64) << 15 ^ UInt128(randomness.next() as UInt64) >> 49
                last = start | random
            } else {
                // Random, because a forked child goes on from the same id as its parent.
                last += 1 + (UInt128(randomness.next() as UInt64) >> 24)
            }
            return ULID(rawValue: last)
        }
    }
}

extension ULID.Generator where Randomness == SystemRandomNumberGenerator {
    /// Creates a generator that uses the system's random numbers.
    public init() { self.init(randomness: SystemRandomNumberGenerator()) }

    fileprivate init(after last: UInt128) {
        self.init()
        self.last = last
    }
}

extension ULID: Comparable {
    /// The earlier one is less; within a millisecond, the one with the smaller random part.
    public static func < (left: ULID, right: ULID) -> Bool { left.rawValue < right.rawValue }
}

extension ULID: LosslessStringConvertible {
    static let alphabet = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ".utf8)
    /// The value of each byte, in either case; 255 if it is not in the alphabet.
    private static let digits = (UInt8.min...UInt8.max).map { byte in
        alphabet.firstIndex(of: byte.uppercasedASCII).map { UInt8($0) } ?? .max
    }

    /// 26 characters in upper case.
    public var description: String {
        let digits = (0..<26).map { Self.alphabet[Int(truncatingIfNeeded: rawValue >> (125 - 5 * $0)) & 31] }
        return String(decoding: digits, as: UTF8.self)
    }

    /// Parses 26 characters, in either case; nil for anything else, and for a value above 128 bits.
    public init?(_ text: String) {
        guard text.utf8.count == 26 else { return nil }
        var value: UInt128 = 0
        for (place, byte) in text.utf8.enumerated() {
            let digit = Self.digits[Int(byte)]
            guard digit < (place == 0 ? 8 : 32) else { return nil }
            value = value << 5 | UInt128(digit)
        }
        rawValue = value
    }

    /// Parses 26 bytes; nil for anything else, and for lower case.
    package init?(upperCase text: UnsafeBufferPointer<UInt8>) {
        guard text.count == 26 else { return nil }
        var value: UInt128 = 0
        for place in 0..<26 {
            let byte = unsafe text[place]
            let digit = Self.digits[Int(byte)]
            guard digit < (place == 0 ? 8 : 32), byte < UInt8(ascii: "a") else { return nil }
            value = value << 5 | UInt128(digit)
        }
        rawValue = value
    }
}

extension ULID: TextForm {
    static let form = "a ULID of 26 characters"
    static func parse(_ text: String) -> ULID? { ULID(text) }
}

extension ULID: Codable {
    /// Decodes a JSON string of 26 characters, in either case; throws for anything else.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText()
    }

    /// Writes a JSON string: `description`.
    public func encode(to encoder: any Encoder) throws {
        try encoder.encodeText(description)
    }
}

extension UInt8 {
    fileprivate var uppercasedASCII: UInt8 {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self) ? self - 32 : self
    }
}
