internal import Glibc

/// The text of a small file of /proc, without its last line feed; nil when it cannot be read.
func readProcFile(_ path: String) -> String? {
    guard
        let descriptor = try? systemCall(
            path: path,
            { unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) }
        )
    else { return nil }
    let file = OpenFile(owning: descriptor, path: path)
    guard var bytes = try? file.readAll(limit: 64 << 10) else { return nil }
    if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
    return String(decoding: bytes, as: UTF8.self)
}

/// Where a link of /proc points; nil when it cannot be read.
func readProcLink(_ path: String) -> String? {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = unsafe buffer.withUnsafeMutableBytes { bytes in
        unsafe readlink(path, bytes.bindMemory(to: CChar.self).baseAddress!, bytes.count)
    }
    return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
}
