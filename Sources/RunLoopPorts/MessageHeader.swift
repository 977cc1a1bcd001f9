/// The wire format of a message, in the byte order of the machine that both ends run on:
///
///     offset  0  magic          UInt32
///             4  version        UInt8     1
///             5  kind           UInt8     1 message, 2 request, 3 reply
///             6  hasReplyPort   UInt8     0 or 1: the last descriptor is the reply port's
///             7  zero           UInt8
///             8  id             Int32     the sender's
///            12  number         UInt32    which request; 0 in a plain message
///            16  components     UInt16
///            18  descriptors    UInt16
///            20  lengths        UInt32 for each component
///                the components' bytes, one after the other, to the end
struct MessageHeader: Sendable, Hashable {
    enum Kind: UInt8, Sendable { case message = 1, request, reply }

    static let magic: UInt32 = 0x524C_4B50
    static let version: UInt8 = 1
    static let fixedSize = 20
    /// The greatest number of bytes before the components' bytes.
    static let maximumSize = fixedSize + 4 * PortMessage.maximumComponents

    var kind: Kind
    var hasReplyPort = false
    var id: Int32 = 0
    var number: UInt32 = 0
    var componentCount = 0
    var descriptorCount = 0

    /// The offset of the components' bytes.
    var size: Int { MessageHeader.fixedSize + 4 * componentCount }
}

// MARK: - Writing

extension MessageHeader {
    /// Writes the header and the components' lengths to the front of `bytes`, which has room for ``size``.
    func write(_ components: [[UInt8]], to bytes: UnsafeMutableRawBufferPointer) {
        unsafe bytes.storeBytes(of: MessageHeader.magic, as: UInt32.self)
        unsafe bytes.storeBytes(of: MessageHeader.version, toByteOffset: 4, as: UInt8.self)
        unsafe bytes.storeBytes(of: kind.rawValue, toByteOffset: 5, as: UInt8.self)
        unsafe bytes.storeBytes(of: hasReplyPort ? 1 : 0, toByteOffset: 6, as: UInt8.self)
        unsafe bytes.storeBytes(of: 0, toByteOffset: 7, as: UInt8.self)
        unsafe bytes.storeBytes(of: id, toByteOffset: 8, as: Int32.self)
        unsafe bytes.storeBytes(of: number, toByteOffset: 12, as: UInt32.self)
        unsafe bytes.storeBytes(of: UInt16(componentCount), toByteOffset: 16, as: UInt16.self)
        unsafe bytes.storeBytes(of: UInt16(descriptorCount), toByteOffset: 18, as: UInt16.self)
        for index in components.indices {
            let length = UInt32(components[index].count)
            unsafe bytes.storeBytes(of: length, toByteOffset: MessageHeader.fixedSize + 4 * index, as: UInt32.self)
        }
    }
}

// MARK: - Reading

extension MessageHeader {
    /// Reads a whole message that arrived with `descriptors` descriptors. The peer's data is not trusted: after this, every
    /// length is within `bytes`.
    static func read(_ bytes: RawSpan, descriptors: Int) throws(LocalPort.DropReason) -> MessageHeader {
        guard bytes.byteCount >= fixedSize, unsafe bytes.unsafeLoadUnaligned(as: UInt32.self) == magic,
            unsafe bytes.unsafeLoadUnaligned(fromByteOffset: 4, as: UInt8.self) == version,
            let kind = unsafe Kind(rawValue: bytes.unsafeLoadUnaligned(fromByteOffset: 5, as: UInt8.self))
        else { throw .notAMessage }
        let header = unsafe MessageHeader(
            kind: kind,
            hasReplyPort: bytes.unsafeLoadUnaligned(fromByteOffset: 6, as: UInt8.self) != 0,
            id: bytes.unsafeLoadUnaligned(fromByteOffset: 8, as: Int32.self),
            number: bytes.unsafeLoadUnaligned(fromByteOffset: 12, as: UInt32.self),
            componentCount: Int(bytes.unsafeLoadUnaligned(fromByteOffset: 16, as: UInt16.self)),
            descriptorCount: Int(bytes.unsafeLoadUnaligned(fromByteOffset: 18, as: UInt16.self))
        )
        try header.check(bytes, descriptors: descriptors)
        return header
    }

    private func check(_ bytes: RawSpan, descriptors: Int) throws(LocalPort.DropReason) {
        guard componentCount <= PortMessage.maximumComponents else { throw .tooManyComponents }
        guard descriptorCount == descriptors, !hasReplyPort || descriptors > 0 else { throw .wrongDescriptors }
        guard bytes.byteCount >= size else { throw .wrongLengths }
        // No overflow: 64 lengths of 32 bits.
        let total = (0..<componentCount).reduce(size) { $0 + length(of: $1, in: bytes) }
        guard total == bytes.byteCount else { throw .wrongLengths }
    }

    /// The length of a component; the component must exist.
    func length(of index: Int, in bytes: RawSpan) -> Int {
        Int(unsafe bytes.unsafeLoadUnaligned(fromByteOffset: MessageHeader.fixedSize + 4 * index, as: UInt32.self))
    }

    /// The range of a component's bytes.
    func range(of index: Int, in bytes: RawSpan) -> Range<Int> {
        let start = (0..<index).reduce(size) { $0 + length(of: $1, in: bytes) }
        return start..<start + length(of: index, in: bytes)
    }
}
