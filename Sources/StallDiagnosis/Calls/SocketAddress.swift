/// The text of an address in the form that socket calls use (ip(7), ipv6(7), unix(7)). Pure.
struct SocketAddress: Hashable, Sendable {
    /// `10.0.0.7:5432`, `[::1]:80`, a path, or `@` and an abstract name. Nil for an address without a name, and for other
    /// families.
    let text: String?

    init?(at address: UInt, length: Int, _ read: (UInt, Int) -> [UInt8]?) {
        guard address != 0, length >= 2, let bytes = read(address, min(length, 110)) else { return nil }
        self.init(bytes)
    }

    /// - Parameter bytes: As many bytes as the address has.
    init?(_ bytes: [UInt8]) {
        guard bytes.count >= 2 else { return nil }
        switch bytes.number(at: 0, 2) {
        case 1: text = Self.path(bytes.dropFirst(2))
        case 2 where bytes.count >= 8: text = "\(Self.four(bytes[4..<8])):\(Self.port(bytes))"
        case 10 where bytes.count >= 24: text = Self.six(Array(bytes[8..<24]), Self.port(bytes))
        default: text = nil
        }
    }

    private static func port(_ bytes: [UInt8]) -> Int { Int(bytes[2]) << 8 | Int(bytes[3]) }

    private static func four(_ bytes: ArraySlice<UInt8>) -> String { bytes.map(String.init).joined(separator: ".") }

    /// RFC 5952: the longest run of zero groups is left out.
    private static func six(_ bytes: [UInt8], _ port: Int) -> String {
        if bytes[..<10].allSatisfy({ $0 == 0 }), bytes[10] == 0xff, bytes[11] == 0xff {
            return "\(four(bytes[12...])):\(port)"
        }
        let groups = stride(from: 0, to: 16, by: 2).map { (index: Int) -> Int in
            Int(bytes[index]) << 8 | Int(bytes[index + 1])
        }
        var longest = 0..<0
        for start in groups.indices {
            let length = groups[start...].prefix { $0 == 0 }.count
            if length > longest.count, length > 1 { longest = start..<(start + length) }
        }
        func hex(_ part: ArraySlice<Int>) -> String { part.map { String($0, radix: 16) }.joined(separator: ":") }
        guard !longest.isEmpty else { return "[\(hex(groups[...]))]:\(port)" }
        return "[\(hex(groups[..<longest.lowerBound]))::\(hex(groups[longest.upperBound...]))]:\(port)"
    }

    private static func path(_ bytes: ArraySlice<UInt8>) -> String? {
        guard let first = bytes.first else { return nil }
        if first == 0 { return bytes.count > 1 ? "@" + String(decoding: bytes.dropFirst(), as: UTF8.self) : nil }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
}

/// Text in the memory of a waiting thread.
enum CText {
    /// The longest path that is read, in bytes.
    private static let limit = 512

    /// A path that ends in a zero byte. The next page may not be readable, so the rest of the present page is read first.
    static func path(at address: UInt, _ read: (UInt, Int) -> [UInt8]?) -> String? {
        guard address != 0 else { return nil }
        var text: [UInt8] = []
        var next = address
        while text.count < limit {
            let count = min(limit - text.count, Int(4096 - next % 4096))
            guard let bytes = read(next, count) else { return nil }
            if let end = bytes.firstIndex(of: 0) { return String(decoding: text + bytes[..<end], as: UTF8.self) }
            text += bytes
            next &+= UInt(count)
        }
        return String(decoding: text, as: UTF8.self) + "…"
    }
}
