import CZlib
import Synchronization

/// The gzip format (RFC 1952), by zlib. For any thread.
public enum Gzip {
    /// Why bytes could not be decompressed.
    public enum Failure: Error, Hashable, Sendable {
        /// The result would be larger than the limit, the bytes are more than 4 GiB, or there is not enough memory.
        case tooLarge
        /// The bytes are not in this format, damaged, or truncated.
        case damaged
    }

    /// Compresses bytes.
    ///
    /// - Parameter level: From 1 for the fastest to 9 for the smallest; nil for zlib's default.
    /// - Returns: Nil if there is not enough memory, or for more than 4 GiB.
    public static func compressed(_ bytes: [UInt8], level: Int? = nil) -> [UInt8]? {
        let level = level.map { Int32(clamping: min(max($0, 1), 9)) } ?? Z_DEFAULT_COMPRESSION
        guard UInt32(exactly: bytes.count) != nil, let packer = Packer.unused(level) ?? Packer(level) else {
            return nil
        }
        defer { packer.putBack() }
        return packer.compressed(bytes)
    }

    /// Decompresses bytes.
    ///
    /// - Parameter limit: The largest size of the result in bytes. Some kilobytes can expand to gigabytes: nothing beyond the
    ///   limit is decompressed, except a piece.
    /// - Throws: ``Failure``.
    public static func decompressed(_ bytes: [UInt8], limit: Int) throws(Failure) -> [UInt8] {
        let unpacker = try Unpacker(bytes)
        var output: [UInt8] = []
        while let piece = try unpacker.next() {
            guard output.count + piece.count <= limit else { throw .tooLarge }
            output += piece
        }
        return output
    }
}

extension Gzip {
    // Safe: this object owns the pointer and frees it in `deinit`. zlib's state contains its own address, so it must not move.

    /// Decompresses piece by piece, so that no more than a piece is in memory at a time. For one thread at a time.
    @safe public final class Unpacker {
        private static let pieceBytes = 1 << 16
        private let stream: UnsafeMutablePointer<z_stream>
        private let input: [UInt8]
        private var position = 0
        private var isAtEnd = false

        /// - Throws: ``Failure/tooLarge`` if there is not enough memory, or for more than 4 GiB.
        public init(_ bytes: [UInt8]) throws(Failure) {
            input = bytes
            unsafe stream = .allocate(capacity: 1)
            unsafe stream.initialize(to: z_stream())
            guard UInt32(exactly: bytes.count) != nil,
                unsafe inflateInit2_(stream, 15 + 16, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK
            else { throw .tooLarge }
        }

        deinit {
            // This has no effect on a stream that was never begun.
            unsafe _ = inflateEnd(stream)
            unsafe stream.deallocate()
        }

        /// The next bytes, at least one. Nil at the end.
        ///
        /// - Throws: ``Failure/damaged``. Earlier pieces may have been valid.
        public func next() throws(Failure) -> [UInt8]? {
            var piece = [UInt8](repeating: 0, count: Self.pieceBytes)
            var rest = piece.count
            // A member may follow another one (RFC 1952, 2.2), and be empty. Short ones share a piece, which takes longer to make than they do.
            while rest > 0, !(isAtEnd && position == input.count) {
                if isAtEnd, unsafe inflateReset(stream) != Z_OK { throw .damaged }
                let status = inflate(into: &piece, &rest)
                isAtEnd = status == Z_STREAM_END
                // At the end of the input zlib does nothing, which is another status.
                guard isAtEnd || status == Z_OK else { throw .damaged }
            }
            piece.removeLast(rest)
            return piece.isEmpty ? nil : piece
        }

        /// - Parameter rest: How much of the piece is left.
        private func inflate(into piece: inout [UInt8], _ rest: inout Int) -> CInt {
            unsafe input.withUnsafeBufferPointer { source in
                unsafe piece.withUnsafeMutableBufferPointer { target in
                    // zlib does not write to its input.
                    unsafe stream.pointee.next_in = UnsafeMutablePointer(
                        mutating: source.baseAddress.map { unsafe $0 + position }
                    )
                    unsafe stream.pointee.avail_in = UInt32(clamping: source.count - position)
                    unsafe stream.pointee.next_out = target.baseAddress.map { unsafe $0 + (target.count - rest) }
                    unsafe stream.pointee.avail_out = UInt32(clamping: rest)
                    let status = unsafe CZlib.inflate(stream, Z_NO_FLUSH)
                    rest = Int(unsafe stream.pointee.avail_out)
                    position = source.count - Int(unsafe stream.pointee.avail_in)
                    return status
                }
            }
        }
    }
}

extension Gzip {
    // Safe: this object owns the pointer and frees it in `deinit`. zlib's state contains its own address, so it must not move.
    // Sendable: only the thread that took it from the unused ones, or made it, uses it.

    /// The state of a compression, a quarter of a megabyte. To make one takes longer than to compress some kilobytes, so some
    /// are kept.
    @safe final class Packer: @unchecked Sendable {
        private static let kept = 4
        private static let unused = Mutex<[Packer]>([])

        private let level: Int32
        private let stream: UnsafeMutablePointer<z_stream>

        /// Nil if there is not enough memory.
        init?(_ level: Int32) {
            self.level = level
            unsafe stream = .allocate(capacity: 1)
            unsafe stream.initialize(to: z_stream())
            // 15 bits of window, and 16 for gzip's header instead of zlib's.
            guard
                unsafe deflateInit2_(
                    stream,
                    level,
                    Z_DEFLATED,
                    15 + 16,
                    8,
                    Z_DEFAULT_STRATEGY,
                    ZLIB_VERSION,
                    Int32(MemoryLayout<z_stream>.size)
                ) == Z_OK
            else { return nil }
        }

        deinit {
            // This has no effect on a stream that was never begun.
            unsafe _ = deflateEnd(stream)
            unsafe stream.deallocate()
        }

        /// One that nobody uses, if there is one of this level.
        static func unused(_ level: Int32) -> Packer? {
            unused.withLock { unused in
                unused.lastIndex { $0.level == level }.map { unused.remove(at: $0) }
            }
        }

        /// The caller does not use it any more.
        func putBack() {
            let isReady = unsafe deflateReset(stream) == Z_OK
            Self.unused.withLock { unused in
                if isReady, unused.count < Self.kept { unused.append(self) }
            }
        }

        /// Compresses bytes. Once after it was made or taken.
        ///
        /// - Parameter bytes: At most 4 GiB.
        func compressed(_ bytes: [UInt8]) -> [UInt8]? {
            var output = [UInt8](repeating: 0, count: Int(unsafe deflateBound(stream, uLong(bytes.count))))
            let isWhole = unsafe bytes.withUnsafeBufferPointer { source in
                unsafe output.withUnsafeMutableBufferPointer { target in
                    // zlib does not write to its input.
                    unsafe stream.pointee.next_in = UnsafeMutablePointer(mutating: source.baseAddress)
                    unsafe stream.pointee.avail_in = UInt32(clamping: source.count)
                    unsafe stream.pointee.next_out = target.baseAddress
                    unsafe stream.pointee.avail_out = UInt32(clamping: target.count)
                    return unsafe deflate(stream, Z_FINISH) == Z_STREAM_END
                }
            }
            return isWhole ? Array(output.prefix(Int(clamping: unsafe stream.pointee.total_out))) : nil
        }
    }
}
