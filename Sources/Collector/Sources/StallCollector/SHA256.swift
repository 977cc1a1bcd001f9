import Foundation

/// SHA-256 (FIPS 180-4), for texts of our own and of the operator: it is slow.
enum SHA256 {
    static func base64(of text: String) -> String { Data(hash(Array(text.utf8))).base64EncodedString() }

    static func hash(_ message: [UInt8]) -> [UInt8] {
        let length = UInt64(message.count) << 3
        var padded = message + [0x80]
        padded += [UInt8](repeating: 0, count: (120 - padded.count % 64) % 64)
        padded += (0..<8).map { UInt8(truncatingIfNeeded: length >> (56 - 8 * UInt64($0))) }
        var state = start
        for block in stride(from: 0, to: padded.count, by: 64) { add(padded[block..<block + 64], to: &state) }
        return state.flatMap { word in (0..<4).map { UInt8(truncatingIfNeeded: word >> (24 - 8 * UInt32($0))) } }
    }

    private static func add(_ block: ArraySlice<UInt8>, to state: inout [UInt32]) {
        var words = stride(from: block.startIndex, to: block.endIndex, by: 4).map { place in
            block[place..<place + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        }
        for place in 16..<64 {
            let (early, late) = (words[place - 15], words[place - 2])
            let first = rotated(early, 7) ^ rotated(early, 18) ^ early >> 3
            let second = rotated(late, 17) ^ rotated(late, 19) ^ late >> 10
            words.append(words[place - 16] &+ first &+ words[place - 7] &+ second)
        }
        var now = state
        for place in 0..<64 {
            let (a, e) = (now[0], now[4])
            let choice = (e & now[5]) ^ (~e & now[6])
            let first =
                now[7] &+ (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) &+ choice &+ constants[place]
                &+ words[place]
            let majority = (a & now[1]) ^ (a & now[2]) ^ (now[1] & now[2])
            let second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) &+ majority
            now = [first &+ second, a, now[1], now[2], now[3] &+ first, e, now[5], now[6]]
        }
        for place in state.indices { state[place] = state[place] &+ now[place] }
    }

    private static func rotated(_ word: UInt32, _ bits: UInt32) -> UInt32 { word >> bits | word << (32 - bits) }

    /// The first 32 bits of the fractional parts of roots of the first primes: square roots of 8 of them, cube roots of 64.
    private static let start = primes(8).map { fraction(Double($0).squareRoot()) }
    private static let constants = primes(64).map { cubeRootFraction($0) }

    private static func fraction(_ root: Double) -> UInt32 { UInt32((root - root.rounded(.down)) * 4_294_967_296) }

    /// Computed with integers: a Double does not have enough digits for all of them.
    private static func cubeRootFraction(_ prime: UInt64) -> UInt32 {
        let target = UInt128(prime) << 96
        var root: UInt128 = 0
        for bit in (0..<36).reversed() {
            let next = root | 1 << UInt128(bit)
            if next * next * next <= target { root = next }
        }
        return UInt32(truncatingIfNeeded: root)
    }

    private static func primes(_ count: Int) -> [UInt64] {
        var found: [UInt64] = []
        var number: UInt64 = 2
        while found.count < count {
            if found.allSatisfy({ number % $0 != 0 }) { found.append(number) }
            number += 1
        }
        return found
    }
}
