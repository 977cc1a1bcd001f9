import Testing

@testable import StallIndex

@Suite struct ChecksumTests {
    @Test("A checksum changes with each changed bit and with the length")
    func bits() {
        let bytes = (0..<100).map { UInt8($0) }
        var sums: Set<UInt64> = [Checksum.of(bytes), Checksum.of(bytes + [0]), Checksum.of(Array(bytes.dropLast()))]
        for bit in 0..<800 {
            var changed = bytes
            changed[bit / 8] ^= 1 << (bit % 8)
            sums.insert(Checksum.of(changed))
        }
        #expect(sums.count == 803)
    }
}
