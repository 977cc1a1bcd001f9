/// Random numbers by SplitMix64 (Steele, Lea, Flood 2014): the same for the same seed, everywhere.
struct Dice: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
        return value ^ (value >> 31)
    }

    /// 0 ..< bound.
    mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }

    mutating func happens(_ times: Int, in all: Int) -> Bool { below(all) < times }

    mutating func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }

    /// A number in the range: one of its ends, a number near them or near a power of two, or any.
    mutating func integer(in range: ClosedRange<Int64>) -> Int64 {
        let near = Int64(below(4))
        let value: Int64 =
            switch below(8) {
            case 0...2: range.lowerBound.addingReportingOverflow(near).partialValue
            case 3: range.upperBound
            case 4: range.upperBound &- near
            case 5: (Int64(1) << Int64(below(63))) &+ near &- 2
            case 6: Int64(truncatingIfNeeded: next() >> UInt64(below(64)))
            default: Int64(below(2_000_000_000))
            }
        return min(max(value, range.lowerBound), range.upperBound)
    }
}

/// Strings that an attacker could use.
enum HostileText {
    private static let parts = [
        "a", "main", "shop.Cart.total() -> Swift.Int", "$s4shop4CartV5totalSiyF", "$sScA_pSgWOh", "_ZN3foo3barEv", "$s",
        "/usr/lib/libc.so.6", "/", "//", ".so", ".so.", "..", "libfoo.so.6.1", "\u{1B}]52;c;aGk=\u{7}", "\u{1B}[2J",
        "\u{9B}31m",
        "\r\n", "\n", "\t", "\0", "\u{7F}", "\u{202E}", "\u{200B}", "\u{2028}", "\u{FEFF}", "\u{E0041}", "\u{E000}",
        "e\u{301}\u{302}\u{303}\u{304}", "\u{1F469}\u{200D}\u{1F467}", "数据库", "\u{1100}\u{1161}", "<", "&", "\"", "'",
        "\\", "]]>", "<!--",
        "%s%n", "ﷺ", "\u{10FFFF}", "0", "-1", "9223372036854775808", "null", " ",
    ]

    static func any(_ dice: inout Dice) -> String {
        switch dice.below(12) {
        case 0: ""
        case 1...5: dice.pick(parts)
        case 6...9: (0...dice.below(6)).map { _ in dice.pick(parts) }.joined()
        case 10: String(repeating: dice.pick(parts), count: dice.below(40))
        default: dice.happens(1, in: 20) ? String(repeating: dice.pick(parts), count: 1 + dice.below(3000)) : "x"
        }
    }
}
