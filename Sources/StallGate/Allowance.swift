/// A fault that is known, and does not count until a day that somebody has set.
public struct Allowance: Hashable, Sendable {
    /// Which fault.
    public var fault: FingerprintPrefix
    /// Why it is put up with.
    public var reason: String
    /// Who will mend it.
    public var owner: String
    /// The last day on which it is allowed.
    public var expires: CalendarDay

    /// Nothing is defaulted: an allowance without an end is forgotten.
    public init(fault: FingerprintPrefix, reason: String, owner: String, expires: CalendarDay) {
        (self.fault, self.reason, self.owner, self.expires) = (fault, reason, owner, expires)
    }
}

/// A day of the Gregorian calendar, in UTC: `2027-01-31`.
public struct CalendarDay: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Days sort as their texts do.
    private let text: String

    /// Nil for anything but four, two and two digits that are a day.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.map(\.utf8.count) == [4, 2, 2],
            parts.allSatisfy({ $0.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) }),
            let year = Int(parts[0]), let month = Int(parts[1]), let day = Int(parts[2]),
            (1...12).contains(month), day >= 1, day <= Self.days(in: month, of: year)
        else { return nil }
        self.text = text
    }

    /// As it was given; ``init(_:)`` reads it back.
    public var description: String { text }

    /// By time.
    public static func < (left: Self, right: Self) -> Bool { left.text < right.text }

    private static func days(in month: Int, of year: Int) -> Int {
        let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        return [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
    }
}
