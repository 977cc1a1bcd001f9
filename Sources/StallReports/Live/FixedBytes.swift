/// A fixed number of bytes that contain integers, least significant byte first. Traps outside its bounds: the layout is fixed,
/// only the contents come from outside.
struct FixedBytes: Hashable {
    private(set) var bytes: [UInt8]

    init(count: Int) { bytes = [UInt8](repeating: 0, count: count) }

    init(_ bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    func integer<Value: FixedWidthInteger>(at offset: Int, as type: Value.Type = Value.self) -> Value {
        (0..<Value.bitWidth / 8).reduce(0) { $0 | Value(truncatingIfNeeded: bytes[offset + $1]) << (8 * $1) }
    }

    mutating func set(_ value: some FixedWidthInteger, at offset: Int) {
        for index in 0..<value.bitWidth / 8 { bytes[offset + index] = UInt8(truncatingIfNeeded: value >> (8 * index)) }
    }

    /// The text in `count` bytes, terminated by a zero if there is room.
    func text(at offset: Int, count: Int) -> String {
        String(decoding: bytes[offset..<offset + count].prefix { $0 != 0 }, as: UTF8.self)
    }

    /// Cuts text that does not fit between two characters.
    mutating func set(_ text: String, at offset: Int, count: Int) {
        var rest = Substring(text)
        while rest.utf8.count > count { rest.removeLast() }
        for (index, byte) in rest.utf8.enumerated() { bytes[offset + index] = byte }
    }

    /// FNV-1a, 64 bit: detects a torn block, but does not protect against forgery.
    func checksum(of range: Range<Int>) -> UInt64 {
        bytes[range].reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01b3 }
    }

    /// Writes the checksum of everything before it at `offset`.
    mutating func seal(from start: Int = 0, at offset: Int) { set(checksum(of: start..<offset), at: offset) }

    func isSealed(from start: Int = 0, at offset: Int) -> Bool {
        integer(at: offset) == checksum(of: start..<offset)
    }
}
