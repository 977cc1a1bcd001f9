internal import CZlib

/// The gzip format (RFC 1952), by zlib.
enum Gzip {
    /// Nil when there is no memory for it.
    static func compressed(_ bytes: [UInt8]) -> [UInt8]? {
        var stream = unsafe z_stream()
        // 15 bits of window, and 16 for gzip's header instead of zlib's.
        guard
            unsafe deflateInit2_(
                &stream,
                Z_DEFAULT_COMPRESSION,
                Z_DEFLATED,
                15 + 16,
                8,
                Z_DEFAULT_STRATEGY,
                ZLIB_VERSION,
                Int32(MemoryLayout<z_stream>.size)
            ) == Z_OK
        else { return nil }
        defer { unsafe _ = deflateEnd(&stream) }
        guard let count = UInt32(exactly: bytes.count) else { return nil }
        let bound = Int(unsafe deflateBound(&stream, uLong(count)))
        var input = bytes
        var output = [UInt8](repeating: 0, count: bound)
        let isWhole = unsafe input.withUnsafeMutableBufferPointer { source in
            unsafe output.withUnsafeMutableBufferPointer { target in
                unsafe stream.next_in = source.baseAddress
                unsafe stream.avail_in = count
                unsafe stream.next_out = target.baseAddress
                unsafe stream.avail_out = UInt32(clamping: target.count)
                return unsafe deflate(&stream, Z_FINISH) == Z_STREAM_END
            }
        }
        return isWhole ? Array(output.prefix(Int(clamping: unsafe stream.total_out))) : nil
    }
}
