import CElfUtils

/// What a module says of its symbol file: the name, and the checksum of the whole file.
struct DebugLink: Hashable {
    var name: String
    var checksum: UInt32
}

extension ELFFile {
    /// From `.gnu_debuglink`: a name that ends with a zero and is padded to four bytes, then the checksum. Nil without one.
    func debugLink(_ allowance: Allowance) throws(SymbolProblem) -> DebugLink? {
        guard let section = section(".gnu_debuglink"), section.range.count <= 4096 else { return nil }
        let bytes = try image.bytes(section.range, allowance)
        let name = bytes.prefix { $0 != 0 }
        let place = (name.count + 4) & ~3
        // A name with a slash would lead elsewhere than where symbol files are.
        guard !name.isEmpty, !name.contains(UInt8(ascii: "/")), place + 4 <= bytes.count else { return nil }
        let checksum = bytes[place..<place + 4].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        return DebugLink(name: String(decoding: name, as: UTF8.self), checksum: checksum)
    }
}

extension FileImage {
    /// The checksum that `.gnu_debuglink` uses, of the whole file: CRC-32 as in zlib.
    func checksum(_ allowance: Allowance) throws(SymbolProblem) -> UInt32 {
        var sum = crc32(0, nil, 0)
        for start in stride(from: 0, to: size, by: 1 << 18) {
            let bytes = try passingBytes(start..<start + (1 << 18), allowance)
            sum = unsafe bytes.withUnsafeBufferPointer { unsafe crc32(sum, $0.baseAddress, UInt32($0.count)) }
        }
        return UInt32(truncatingIfNeeded: sum)
    }
}
