/// Text in the memory of a thread that waits.
enum CText {
    /// Longest path told, bytes.
    private static let limit = 512

    /// A path that ends in a zero byte. It may end close to memory that cannot be read: what lies up to the page's end is asked for first.
    package static func path(at address: UInt, _ read: (UInt, Int) -> [UInt8]?) -> String? {
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
