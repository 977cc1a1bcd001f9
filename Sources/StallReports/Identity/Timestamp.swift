package import Glibc

/// A moment on the wall clock, to the nanosecond. In JSON it is RFC 3339 in UTC with nine digits:
/// `2026-01-31T12:00:00.000000001Z`.
public struct Timestamp: Hashable, Sendable {
    /// Whole seconds since 1970-01-01T00:00:00Z, in 0000-01-01 ... 9999-12-31: the range of RFC 3339.
    public let seconds: Int64
    /// 0 ..< 1,000,000,000, always added to `seconds`.
    public let nanoseconds: Int32

    static let secondsRange: ClosedRange<Int64> = -62_167_219_200...253_402_300_799

    /// Creates a moment. Excess nanoseconds are carried into the seconds; a moment outside the years 0 to 9999 becomes the
    /// nearest one inside.
    public init(seconds: Int64, nanoseconds: Int64 = 0) {
        let (carry, rest) = nanoseconds.dividedFloor(by: 1_000_000_000)
        let whole = seconds.addingSaturated(carry)
        self.seconds = min(max(whole, Self.secondsRange.lowerBound), Self.secondsRange.upperBound)
        self.nanoseconds = Int32(rest)
    }

    /// The current wall clock time (`CLOCK_REALTIME`). Any thread.
    public static func now() -> Timestamp {
        var time = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(time)
    }

    /// The system's form.
    package init(_ time: timespec) { self.init(seconds: Int64(time.tv_sec), nanoseconds: Int64(time.tv_nsec)) }

    /// The moment `delta` nanoseconds later (earlier, if negative).
    public func advanced(byNanoseconds delta: Int64) -> Timestamp {
        let (seconds, rest) = delta.dividedFloor(by: 1_000_000_000)
        return Timestamp(seconds: self.seconds + seconds, nanoseconds: Int64(nanoseconds) + rest)
    }

    /// Nanoseconds from `earlier` to this moment; saturated to `Int64` (292 years).
    public func nanoseconds(since earlier: Timestamp) -> Int64 {
        let (product, overflow) = (seconds - earlier.seconds).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, carried) = product.addingReportingOverflow(Int64(nanoseconds) - Int64(earlier.nanoseconds))
        guard overflow || carried else { return sum }
        return self < earlier ? .min : .max
    }

    /// Nanoseconds since 1970, saturated (in the years 1677 and 2262).
    package var unixNanoseconds: Int64 { nanoseconds(since: Timestamp(seconds: 0)) }

    package init(unixNanoseconds: Int64) { self.init(seconds: 0, nanoseconds: unixNanoseconds) }
}

extension Timestamp: Comparable {
    /// The earlier moment is less.
    public static func < (left: Timestamp, right: Timestamp) -> Bool {
        (left.seconds, left.nanoseconds) < (right.seconds, right.nanoseconds)
    }
}

extension Timestamp: TextForm {
    static let form = "an RFC 3339 time like 2026-01-31T12:00:00.000000000Z"
    static func parse(_ text: String) -> Timestamp? { Timestamp(rfc3339: text) }
}

extension Timestamp: Codable {
    /// Decodes a JSON string that ``init(rfc3339:)`` accepts; throws for anything else.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText()
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

extension Timestamp: CustomStringConvertible {
    /// RFC 3339 in UTC with nine digits of fraction.
    public var description: String {
        let (days, second) = seconds.dividedFloor(by: 86_400)
        let date = CivilDate(daysSinceEpoch: days)
        let day = "\(date.year.padded(4))-\(date.month.padded(2))-\(date.day.padded(2))"
        let time = "\((second / 3600).padded(2)):\((second / 60 % 60).padded(2)):\((second % 60).padded(2))"
        return "\(day)T\(time).\(Int64(nanoseconds).padded(9))Z"
    }

    /// Parses RFC 3339 (section 5.6): any number of fraction digits (those after the ninth are dropped), `Z` or an offset.
    /// A leap second becomes the second after it. Nil for anything else.
    public init?(rfc3339 text: some StringProtocol) {
        var scanner = DigitScanner(text.utf8)
        guard let year = scanner.number(4), scanner.take("-"), let month = scanner.number(2), scanner.take("-"),
            let day = scanner.number(2), scanner.take("T") || scanner.take("t") || scanner.take(" "),
            let hour = scanner.number(2), scanner.take(":"), let minute = scanner.number(2), scanner.take(":"),
            let second = scanner.number(2), hour < 24, minute < 60, second <= 60,
            let date = CivilDate(year: year, month: month, day: day)
        else { return nil }
        var fraction: Int64 = 0
        if scanner.take(".") {
            guard let digits = scanner.fraction() else { return nil }
            fraction = digits
        }
        guard let offset = scanner.offsetSeconds(), scanner.isAtEnd else { return nil }
        let local = date.daysSinceEpoch * 86_400 + hour * 3600 + minute * 60 + second
        self.init(seconds: local - offset, nanoseconds: fraction)
    }
}

extension Int64 {
    fileprivate func padded(_ width: Int) -> String {
        let digits = String(self)
        return String(repeating: "0", count: Swift.max(0, width - digits.utf8.count)) + digits
    }
}

/// Reads fixed-width decimal fields of ASCII text from left to right.
private struct DigitScanner {
    private let bytes: [UInt8]
    private var place = 0

    init(_ text: some Sequence<UInt8>) { bytes = Array(text) }

    var isAtEnd: Bool { place == bytes.count }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard place < bytes.count, bytes[place] == UInt8(ascii: character) else { return false }
        place += 1
        return true
    }

    mutating func digit() -> Int64? {
        guard place < bytes.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[place]) else { return nil }
        place += 1
        return Int64(bytes[place - 1] - UInt8(ascii: "0"))
    }

    mutating func number(_ width: Int) -> Int64? {
        var value: Int64 = 0
        for _ in 0..<width {
            guard let next = digit() else { return nil }
            value = value * 10 + next
        }
        return value
    }

    /// One or more digits, as nanoseconds.
    mutating func fraction() -> Int64? {
        guard let first = digit() else { return nil }
        var unit: Int64 = 100_000_000
        var value = first * unit
        while let next = digit() {
            unit /= 10
            value += next * unit
        }
        return value
    }

    /// `Z`, or `+hh:mm` for east of Greenwich.
    mutating func offsetSeconds() -> Int64? {
        if take("Z") || take("z") { return 0 }
        let sign: Int64 = take("-") ? -1 : 1
        guard sign < 0 || take("+"), let hours = number(2), take(":"), let minutes = number(2), hours < 24, minutes < 60
        else { return nil }
        return sign * (hours * 3600 + minutes * 60)
    }
}

/// A day of the Gregorian calendar, and its number. The arithmetic is Howard Hinnant's ("chrono-compatible low-level date
/// algorithms"): years begin in March, so that the leap day is a year's last, and 400 years are one era of 146,097 days.
struct CivilDate: Hashable {
    let year: Int64
    let month: Int64
    let day: Int64

    init(daysSinceEpoch: Int64) {
        let (era, dayOfEra) = (daysSinceEpoch + 719_468).dividedFloor(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let marchMonth = (5 * dayOfYear + 2) / 153
        day = dayOfYear - (153 * marchMonth + 2) / 5 + 1
        month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    }

    /// Nil for a day that does not exist in the calendar.
    init?(year: Int64, month: Int64, day: Int64) {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        let lengths: [Int64] = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        guard (1...12).contains(month), (1...lengths[Int(month) - 1]).contains(day) else { return nil }
        (self.year, self.month, self.day) = (year, month, day)
    }

    var daysSinceEpoch: Int64 {
        let marchYear = month <= 2 ? year - 1 : year
        let (era, yearOfEra) = marchYear.dividedFloor(by: 400)
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
        return era * 146_097 + dayOfEra - 719_468
    }
}
