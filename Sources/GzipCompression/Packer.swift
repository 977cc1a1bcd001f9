import CZlib
import Synchronization

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
