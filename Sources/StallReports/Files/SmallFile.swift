import Glibc

/// The text at the start of a small file, of /proc or a control group. Nil when it cannot be read. Does not wait: the kernel makes such files
/// when they are read.
///
/// - Parameter limit: how many bytes to read at most. One read(2), so the kernel gives no more than a page.
package func readSmallFile(_ path: String, limit: Int = 4096) -> String? {
    unsafe withStartOfFile(path, limit: limit) { unsafe String(decoding: $0, as: UTF8.self) }
}

/// Calls `body` with the bytes at the start of a small file, without an allocation.
package func withStartOfFile<Value>(
    _ path: String,
    limit: Int,
    _ body: (Slice<UnsafeMutableBufferPointer<UInt8>>) -> Value?
) -> Value? {
    let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    return unsafe withUnsafeTemporaryAllocation(of: UInt8.self, capacity: limit) { buffer in
        let count = unsafe read(descriptor, buffer.baseAddress, buffer.count)
        return count > 0 ? unsafe body(buffer[..<count]) : nil
    }
}

/// The text of a file of several pages. Nil when it cannot be read.
///
/// - Parameters:
///   - limit: how many bytes to read at most.
///   - isWhole: whether a longer file counts as one that cannot be read.
package func readFile(_ path: String, limit: Int, isWhole: Bool = true) -> String? {
    let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    // The kernel gives a page at a time. One byte more than the limit shows that the file is longer.
    while bytes.count <= limit {
        let start = bytes.count
        let size = min(16384, limit + 1 - start)
        bytes += repeatElement(0, count: size)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress! + start, size) }
        bytes.removeLast(size - max(0, count))
        if count < 0, isWhole || bytes.isEmpty { return nil }
        if count <= 0 { break }
    }
    if bytes.count > limit {
        guard !isWhole else { return nil }
        bytes.removeLast(bytes.count - limit)
    }
    return bytes.isEmpty && !isWhole ? nil : String(decoding: bytes, as: UTF8.self)
}
