extension Timestamp: CustomStringConvertible {
    /// RFC 3339 in UTC with nine digits of fraction.
    public var description: String {
        let (days, second) = seconds.dividedFloor(by: 86_400)
        let date = CivilDate(daysSinceEpoch: days)
        let day = "\(date.year.padded(4))-\(date.month.padded(2))-\(date.day.padded(2))"
        let time = "\((second / 3600).padded(2)):\((second / 60 % 60).padded(2)):\((second % 60).padded(2))"
        return "\(day)T\(time).\(Int64(nanoseconds).padded(9))Z"
    }

    /// Reads RFC 3339 (section 5.6): any number of fraction digits (those after the ninth are dropped), `Z` or an offset.
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
    private var rest: ArraySlice<UInt8>

    init(_ text: some Sequence<UInt8>) { rest = Array(text)[...] }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard rest.first == UInt8(ascii: character) else { return false }
        rest.removeFirst()
        return true
    }

    mutating func digit() -> Int64? {
        guard let byte = rest.first, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
        rest.removeFirst()
        return Int64(byte - UInt8(ascii: "0"))
    }

    mutating func number(_ width: Int) -> Int64? {
        var value: Int64 = 0
        for _ in 0..<width {
            guard let next = digit() else { return nil }
            value = value * 10 + next
        }
        return value
    }

    /// One digit or more, as nanoseconds.
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

    /// `Z`, or `+hh:mm` east of Greenwich.
    mutating func offsetSeconds() -> Int64? {
        if take("Z") || take("z") { return 0 }
        let sign: Int64 = take("-") ? -1 : 1
        guard sign < 0 || take("+"), let hours = number(2), take(":"), let minutes = number(2), hours < 24, minutes < 60
        else { return nil }
        return sign * (hours * 3600 + minutes * 60)
    }
}
