import Glibc

/// The text of a small file; empty when it cannot be read.
func textOfFile(_ path: String) -> String {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    return unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
        let count = unsafe read(descriptor, buffer.baseAddress, buffer.count)
        return unsafe count > 0 ? String(decoding: buffer[..<count], as: UTF8.self) : ""
    }
}

/// Writes a text into a file as one write. False when it cannot.
@discardableResult
func writeFile(_ text: String, to path: String, creating: Bool = false) -> Bool {
    let flags = O_WRONLY | O_CLOEXEC | (creating ? O_CREAT | O_TRUNC : 0)
    let descriptor = unsafe open(path, flags, 0o600)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    let bytes = Array(text.utf8)
    return unsafe write(descriptor, bytes, bytes.count) == bytes.count
}
