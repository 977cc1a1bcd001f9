/// A duration as people write it: `500ms`, `1.5s`, `2m`, `1h30m`. Not negative; to the nanosecond, up to 292 years.
public struct DurationText: Hashable, Sendable {
    /// Zero or more.
    public let nanoseconds: Int64

    /// Creates a duration. Negative ones become zero.
    public init(nanoseconds: Int64) { self.nanoseconds = max(0, nanoseconds) }

    private static let units: [(name: String, nanoseconds: Int64)] = [
        ("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000),
        ("ms", 1_000_000), ("µs", 1000), ("us", 1000), ("μs", 1000), ("ns", 1),
    ]
}

extension DurationText: LosslessStringConvertible {
    /// Parses a number with a unit, or several in a row. Units: d, h, m, s, ms, µs (us), ns. `0` needs none.
    public init?(_ text: String) {
        if text == "0" {
            self.init(nanoseconds: 0)
            return
        }
        var rest = text.unicodeScalars[...]
        var sum: Int64 = 0
        repeat {
            guard let part = Self.takePart(&rest) else { return nil }
            let (next, overflow) = sum.addingReportingOverflow(part)
            if overflow { return nil }
            sum = next
        } while !rest.isEmpty
        self.init(nanoseconds: sum)
    }

    /// The exact duration: `1m0.25s`. Parsing it gives the same duration.
    public var description: String {
        if nanoseconds == 0 { return "0s" }
        var text = ""
        var rest = nanoseconds
        for unit in Self.units.prefix(3) where rest >= unit.nanoseconds {
            text += "\(rest / unit.nanoseconds)\(unit.name)"
            rest %= unit.nanoseconds
        }
        guard rest > 0 else { return text }
        let unit = text.isEmpty ? Self.largestUnit(for: rest) : Self.units[3]
        return text + Self.decimal(rest, in: unit.nanoseconds) + unit.name
    }

    /// About three digits, for display: `612ms`, `1.53s`, `2m5s`.
    public var short: String { rounded.description }

    /// The duration that ``short`` shows.
    package var rounded: DurationText {
        var step: Int64 = 1
        if nanoseconds >= 3_600_000_000_000 {
            step = 60_000_000_000
        } else if nanoseconds >= 59_950_000_000 {
            step = 1_000_000_000
        } else {
            while nanoseconds / step >= 1000 { step *= 10 }
        }
        let (sum, overflow) = nanoseconds.addingReportingOverflow(step / 2)
        return DurationText(nanoseconds: (overflow ? nanoseconds : sum) / step * step)
    }

    private static func largestUnit(for nanoseconds: Int64) -> (name: String, nanoseconds: Int64) {
        units.first { nanoseconds >= $0.nanoseconds } ?? units[units.count - 1]
    }

    /// `value / unit` as a decimal fraction without trailing zeros. `unit` is a power of ten.
    private static func decimal(_ value: Int64, in unit: Int64) -> String {
        let fraction = String(unit + value % unit).dropFirst()
        let digits = fraction.reversed().drop { $0 == "0" }.reversed()
        return "\(value / unit)" + (digits.isEmpty ? "" : "." + String(digits))
    }

    private static func takePart(_ text: inout Substring.UnicodeScalarView) -> Int64? {
        let digits = text.prefix { ("0"..."9").contains($0) || $0 == "." }
        text = text[digits.endIndex...]
        let letters = text.prefix { !("0"..."9").contains($0) && $0 != "." }
        text = text[letters.endIndex...]
        guard let unit = units.first(where: { $0.name.unicodeScalars.elementsEqual(letters) }) else { return nil }
        return product(String(digits), unit.nanoseconds)
    }

    /// A decimal number times a unit, exactly; fractions of a nanosecond are dropped.
    private static func product(_ number: String, _ unit: Int64) -> Int64? {
        let parts = number.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count <= 2, let whole = Int64(parts[0]) else { return nil }
        var (sum, overflow) = whole.multipliedReportingOverflow(by: unit)
        guard parts.count == 2 else { return overflow ? nil : sum }
        guard !parts[1].isEmpty else { return nil }
        var place = unit
        for digit in parts[1].utf8 {
            // Every unit is a whole number times a power of ten, so this is exact down to about a nanosecond.
            place /= 10
            let (next, carried) = sum.addingReportingOverflow(place * Int64(digit - UInt8(ascii: "0")))
            (sum, overflow) = (next, overflow || carried)
        }
        return overflow ? nil : sum
    }
}
