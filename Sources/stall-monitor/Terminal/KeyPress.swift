/// A key of a terminal, as far as this command's screens use it.
enum KeyPress: Hashable {
    case up, down, pageUp, pageDown, home, end, enter, escape
    case character(Character)
}

/// Makes keys out of what a terminal sends. One read may hold many keys, and a part of one. Pure.
struct KeyDecoder {
    private var pending: [UInt8] = []

    /// Longer than any sequence that is known: what grows beyond is none.
    private static let longest = 8
    private static let escape: UInt8 = 0x1B

    /// Whether the beginning of a sequence waits for its rest: a lone Escape is one, too.
    var isWaiting: Bool { !pending.isEmpty }

    /// The keys that are complete by now.
    mutating func take(_ bytes: [UInt8]) -> [KeyPress] {
        var keys: [KeyPress] = []
        for byte in bytes {
            if !pending.isEmpty, byte == Self.escape { keys += settle() }
            pending.append(byte)
            guard Self.isComplete(pending) || pending.count >= Self.longest else { continue }
            Self.key(pending).map { keys.append($0) }
            pending = []
        }
        return keys
    }

    /// Nothing has come for a while: an Escape that waits was the key of that name.
    mutating func settle() -> [KeyPress] {
        defer { pending = [] }
        return pending == [Self.escape] ? [.escape] : []
    }

    /// A sequence begins with Escape and `[` or `O`, and ends with a letter or `~` (ECMA-48, 5.4).
    private static func isComplete(_ bytes: [UInt8]) -> Bool {
        guard bytes[0] == escape else { return true }
        switch bytes.count {
        case 1: return false
        case 2: return bytes[1] != UInt8(ascii: "[") && bytes[1] != UInt8(ascii: "O")
        default: return (0x40...0x7E).contains(bytes[bytes.count - 1])
        }
    }

    private static func key(_ bytes: [UInt8]) -> KeyPress? {
        guard bytes[0] == escape else { return plain(bytes[0]) }
        return switch String(decoding: bytes.dropFirst(2), as: UTF8.self) {
        case "A": .up
        case "B": .down
        case "5~": .pageUp
        case "6~": .pageDown
        case "H", "1~", "7~": .home
        case "F", "4~", "8~": .end
        default: nil
        }
    }

    private static func plain(_ byte: UInt8) -> KeyPress? {
        switch byte {
        case 0x0D, 0x0A: .enter
        case 0x7F, 0x08: .escape
        case 0x20...0x7E: .character(Character(Unicode.Scalar(byte)))
        default: nil
        }
    }
}
