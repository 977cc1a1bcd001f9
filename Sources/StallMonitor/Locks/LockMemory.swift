/// Memory as a lock's reader sees it, and who is there. Recorded in tests.
struct LockMemory {
    /// Reads 32-bit words; nil when not all can be read.
    let words: (_ address: UInt, _ count: Int) -> [UInt32]?
    /// Whether this process has a thread with the number.
    let hasThread: (Int32) -> Bool
    /// Where glibc's descriptor of a thread has its number, in bytes from what pthread_self gives. Nil when it is not known.
    var threadNumberOffset: UInt?

    func word(at address: UInt) -> UInt32? { words(address, 1)?.first }

    func pointer(at address: UInt) -> UInt? {
        guard let words = words(address, 2) else { return nil }
        return UInt(words[0]) | UInt(words[1]) << 32
    }

    /// The text at an address, of printable ASCII and 64 bytes at most. Nil where there is another thing.
    func label(at address: UInt) -> String? {
        var bytes: [UInt8] = []
        // Word by word: it may end right before memory that is not there.
        for word in 0..<16 {
            guard let four = words(address &+ UInt(word) * 4, 1)?.first else { return nil }
            for shift in [0, 8, 16, 24] as [UInt32] {
                let byte = UInt8(truncatingIfNeeded: four >> shift)
                if byte == 0 { return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self) }
                guard (0x20..<0x7f).contains(byte) else { return nil }
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
