/// Writes numbers and texts one after the other, in a form that does not depend on the machine.
struct ByteWriter {
    private(set) var bytes: [UInt8] = []

    mutating func reserve(_ count: Int) { bytes.reserveCapacity(bytes.count + count) }

    /// Writes all bytes of the type, least significant byte first.
    mutating func fixed<Number: FixedWidthInteger>(_ number: Number) {
        unsafe withUnsafeBytes(of: number.littleEndian) { unsafe bytes.append(contentsOf: $0) }
    }

    /// Writes seven bits per byte, so that small numbers are short.
    mutating func number(_ number: Int) {
        var rest = UInt64(bitPattern: Int64(number))
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }

    mutating func flag(_ flag: Bool) { bytes.append(flag ? 1 : 0) }

    mutating func text(_ text: String) {
        number(text.utf8.count)
        bytes.append(contentsOf: text.utf8)
    }

    mutating func list<Element>(_ elements: [Element], _ write: (inout ByteWriter, Element) -> Void) {
        number(elements.count)
        for element in elements { write(&self, element) }
    }

    mutating func optional<Element>(_ element: Element?, _ write: (inout ByteWriter, Element) -> Void) {
        flag(element != nil)
        if let element { write(&self, element) }
    }
}

/// Bytes that belong to the caller of the closure that receives them. Valid only inside that closure. Nothing beyond their end is
/// read.
@safe struct ByteView {
    private let raw: UnsafeRawBufferPointer

    init(_ raw: UnsafeRawBufferPointer) { unsafe self.raw = raw }

    var count: Int { unsafe raw.count }

    /// Traps if fewer bytes are left. Callers check the count first.
    func load<Number: FixedWidthInteger>(at position: Int, as _: Number.Type) -> Number {
        precondition(position >= 0 && position <= count - MemoryLayout<Number>.size)
        return unsafe Number(littleEndian: raw.loadUnaligned(fromByteOffset: position, as: Number.self))
    }

    subscript(range: Range<Int>) -> ByteView { unsafe ByteView(UnsafeRawBufferPointer(rebasing: raw[range])) }

    var text: String { unsafe String(decoding: raw, as: UTF8.self) }
}

/// Reads what ``ByteWriter`` wrote. It never reads beyond the end; invalid bytes make it throw.
struct ByteReader {
    struct Invalid: Error {}

    private let bytes: ByteView
    private(set) var position = 0

    init(_ bytes: ByteView) { self.bytes = bytes }

    var isAtEnd: Bool { position == bytes.count }

    mutating func fixed<Number: FixedWidthInteger>(_: Number.Type) throws(Invalid) -> Number {
        let size = MemoryLayout<Number>.size
        guard bytes.count - position >= size else { throw Invalid() }
        defer { position += size }
        return bytes.load(at: position, as: Number.self)
    }

    mutating func number() throws(Invalid) -> Int {
        var (value, shift): (UInt64, UInt64) = (0, 0)
        while shift < 64 {
            let byte = try fixed(UInt8.self)
            value |= UInt64(byte & 0x7f) &<< shift
            if byte < 0x80 { return Int(Int64(bitPattern: value)) }
            shift += 7
        }
        throw Invalid()
    }

    mutating func flag() throws(Invalid) -> Bool { try fixed(UInt8.self) != 0 }

    mutating func text() throws(Invalid) -> String {
        let count = try number()
        guard count >= 0, count <= bytes.count - position else { throw Invalid() }
        defer { position += count }
        return bytes[position..<position + count].text
    }

    mutating func list<Element>(
        _ read: (inout ByteReader) throws(Invalid) -> Element
    ) throws(Invalid) -> [Element] {
        let count = try number()
        // Each element takes at least one byte.
        guard count >= 0, count <= bytes.count - position else { throw Invalid() }
        var elements: [Element] = []
        for _ in 0..<count { elements.append(try read(&self)) }
        return elements
    }

    mutating func optional<Element>(
        _ read: (inout ByteReader) throws(Invalid) -> Element
    ) throws(Invalid) -> Element? {
        try flag() ? try read(&self) : nil
    }
}

/// Detects accidental damage: a 64-bit hash at some gigabytes per second. It does not protect against an attacker, who could
/// write a matching hash.
enum Checksum {
    static func of(_ bytes: ByteView) -> UInt64 {
        var (left, right): (UInt64, UInt64) = (0x9e37_79b9_7f4a_7c15 ^ UInt64(bytes.count), 0xc2b2_ae3d_27d4_eb4f)
        var position = 0
        while bytes.count - position >= 16 {
            left = mixed(left ^ bytes.load(at: position, as: UInt64.self), 0xff51_afd7_ed55_8ccd)
            right = mixed(right ^ bytes.load(at: position + 8, as: UInt64.self), 0xc4ce_b9fe_1a85_ec53)
            position += 16
        }
        while position < bytes.count {
            left = mixed(left ^ UInt64(bytes.load(at: position, as: UInt8.self)), 0xff51_afd7_ed55_8ccd)
            position += 1
        }
        return mixed(left ^ (right &<< 1 | right &>> 63), 0x9fb2_1c65_1e98_df25)
    }

    static func of(_ bytes: [UInt8]) -> UInt64 { unsafe bytes.withUnsafeBytes { unsafe of(ByteView($0)) } }

    private static func mixed(_ value: UInt64, _ factor: UInt64) -> UInt64 {
        let product = (value ^ (value &>> 32)) &* factor
        return product ^ (product &>> 29)
    }
}
