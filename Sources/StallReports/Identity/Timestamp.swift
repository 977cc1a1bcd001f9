internal import Glibc

/// A moment of the wall clock, to the nanosecond. In JSON RFC 3339 in UTC with nine digits: `2026-01-31T12:00:00.000000001Z`.
public struct Timestamp: Hashable, Sendable {
    /// Whole seconds since 1970-01-01T00:00:00Z, in 0000-01-01 ... 9999-12-31: what RFC 3339 can write.
    public let seconds: Int64
    /// 0 ..< 1,000,000,000, always forwards from `seconds`.
    public let nanoseconds: Int32

    static let secondsRange: ClosedRange<Int64> = -62_167_219_200...253_402_300_799

    /// Surplus nanoseconds are carried into the seconds; a moment outside the years 0 to 9999 becomes the nearest inside.
    public init(seconds: Int64, nanoseconds: Int64 = 0) {
        let (carry, rest) = nanoseconds.dividedFloor(by: 1_000_000_000)
        let whole = seconds.addingSaturated(carry)
        self.seconds = min(max(whole, Self.secondsRange.lowerBound), Self.secondsRange.upperBound)
        self.nanoseconds = Int32(rest)
    }

    /// The wall clock now (`CLOCK_REALTIME`). Any thread.
    public static func now() -> Timestamp {
        var time = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(seconds: Int64(time.tv_sec), nanoseconds: Int64(time.tv_nsec))
    }

    /// The moment so many nanoseconds later, or earlier.
    public func advanced(byNanoseconds delta: Int64) -> Timestamp {
        let (seconds, rest) = delta.dividedFloor(by: 1_000_000_000)
        return Timestamp(seconds: self.seconds + seconds, nanoseconds: Int64(nanoseconds) + rest)
    }

    /// Nanoseconds from `earlier` to this moment; held at the ends of `Int64` (292 years).
    public func nanoseconds(since earlier: Timestamp) -> Int64 {
        let (product, overflow) = (seconds - earlier.seconds).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, carried) = product.addingReportingOverflow(Int64(nanoseconds) - Int64(earlier.nanoseconds))
        guard overflow || carried else { return sum }
        return self < earlier ? .min : .max
    }
}

extension Timestamp: Comparable {
    /// The earlier one is less.
    public static func < (left: Timestamp, right: Timestamp) -> Bool {
        (left.seconds, left.nanoseconds) < (right.seconds, right.nanoseconds)
    }
}

extension Timestamp: Codable {
    /// From a JSON string that ``init(rfc3339:)`` takes; throws for anything else.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText(as: "an RFC 3339 time like 2026-01-31T12:00:00.000000000Z") {
            Timestamp(rfc3339: $0)
        }
    }

    /// Writes a JSON string: `description`.
    public func encode(to encoder: any Encoder) throws {
        try encoder.encodeText(description)
    }
}

extension Int64 {
    /// Quotient and remainder with the remainder never negative.
    func dividedFloor(by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
