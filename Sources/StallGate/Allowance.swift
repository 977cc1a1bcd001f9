/// A known fault that does not count until a given day.
public struct Allowance: Hashable, Sendable {
    /// The fault.
    public var fault: FingerprintPrefix
    /// Why it is tolerated.
    public var reason: String
    /// Who will fix it.
    public var owner: String
    /// The last day on which it is allowed.
    public var expires: CalendarDay

    /// Nothing is defaulted: an allowance without an end would be forgotten.
    public init(fault: FingerprintPrefix, reason: String, owner: String, expires: CalendarDay) {
        (self.fault, self.reason, self.owner, self.expires) = (fault, reason, owner, expires)
    }
}

/// A day of the Gregorian calendar, in UTC: `2027-01-31`.
public struct CalendarDay: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Days sort like their texts.
    private let text: String

    /// Nil unless it is four, two and two digits that form a valid day.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.map(\.utf8.count) == [4, 2, 2],
            parts.allSatisfy({ $0.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) }),
            let year = Int(parts[0]), let month = Int(parts[1]), let day = Int(parts[2]),
            (1...12).contains(month), day >= 1, day <= Self.days(in: month, of: year)
        else { return nil }
        self.text = text
    }

    /// The text as passed in; ``init(_:)`` parses it.
    public var description: String { text }

    /// Orders by time.
    public static func < (left: Self, right: Self) -> Bool { left.text < right.text }

    private static func days(in month: Int, of year: Int) -> Int {
        let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        return [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
    }
}
