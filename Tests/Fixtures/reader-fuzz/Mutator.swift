/// Damages a document: its bytes, or the structure of its JSON.
enum Mutator {
    /// Values to put in place of others.
    private static let strangers = [
        "null", "true", "-1", "0", "1e999", "-1e-999", "9223372036854775807", "9223372036854775808",
        "-9223372036854775809", "0.5", "\"\"",
        "\"\\ud800\"", "\"\\u0000\"", "[]", "{}", "[[]]", "[null]", "{\"\":null}", "\"2026-01-01T00:00:60Z\"",
        "18446744073709551616",
        String(repeating: "[", count: 70) + String(repeating: "]", count: 70), String(repeating: "[", count: 100_000),
        "\"v2:\"", "nan",
    ].map { Array($0.utf8) }

    static func broken(_ document: [UInt8], _ dice: inout Dice) -> [UInt8] {
        var bytes = document
        for _ in 0...dice.below(3) where !bytes.isEmpty {
            if dice.happens(1, in: 3) { breakBytes(&bytes, &dice) } else { breakStructure(&bytes, &dice) }
        }
        return bytes
    }

    private static func breakBytes(_ bytes: inout [UInt8], _ dice: inout Dice) {
        let at = dice.below(bytes.count)
        let end = min(bytes.count, at + 1 + dice.below(dice.pick([1, 8, 300])))
        switch dice.below(6) {
        case 0: bytes[at] ^= 1 << UInt8(dice.below(8))
        case 1: bytes[at] = UInt8(dice.below(256))
        case 2: bytes.removeSubrange(at..<end)
        case 3: bytes.insert(contentsOf: bytes[at..<end], at: dice.below(bytes.count))
        case 4: bytes.removeSubrange(at...)
        default: bytes.insert(contentsOf: dice.pick(strangers), at: at)
        }
    }

    private static func breakStructure(_ bytes: inout [UInt8], _ dice: inout Dice) {
        let values = values(in: bytes)
        guard !values.isEmpty else { return breakBytes(&bytes, &dice) }
        let (place, other) = (dice.pick(values), dice.pick(values))
        switch dice.below(5) {
        case 0: bytes.replaceSubrange(place, with: bytes[other])
        case 1, 2: bytes.replaceSubrange(place, with: dice.pick(strangers))
        // With its comma, if there is one: a member or an element less, or a key without a value.
        case 3: bytes.removeSubrange(place.lowerBound..<min(bytes.count, place.upperBound + dice.below(2)))
        // Inserted again: an element twice, or a key twice.
        default: bytes.insert(contentsOf: [UInt8(ascii: ",")] + bytes[place], at: place.upperBound)
        }
    }

    /// The positions of a JSON text's values and keys. In a text that is already broken, what looks like them.
    private static func values(in bytes: [UInt8]) -> [Range<Int>] {
        var (found, open): ([Range<Int>], [Int]) = ([], [])
        var at = 0
        while at < bytes.count {
            let start = at
            switch bytes[at] {
            case UInt8(ascii: "{"), UInt8(ascii: "["): open.append(at)
            case UInt8(ascii: "}"), UInt8(ascii: "]"): if let first = open.popLast() { found.append(first..<at + 1) }
            case UInt8(ascii: "\""):
                at += 1
                while at < bytes.count, bytes[at] != UInt8(ascii: "\"") {
                    at += bytes[at] == UInt8(ascii: "\\") ? 2 : 1
                }
                found.append(start..<min(bytes.count, at + 1))
            case UInt8(ascii: ","), UInt8(ascii: ":"), 0...0x20: break
            default:
                while at + 1 < bytes.count, !",]}:\"".utf8.contains(bytes[at + 1]) { at += 1 }
                found.append(start..<at + 1)
            }
            at += 1
        }
        return found
    }
}
