import Glibc

/// This process's memory, read without ever faulting: `/proc/self/mem` answers an unmapped address with an error.
struct OwnMemory: ~Copyable {
    private let file: Int32

    /// Nil without `/proc`.
    init?() {
        file = unsafe open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
        if file < 0 { return nil }
    }

    deinit {
        close(file)
    }

    /// - Returns: `count` bytes, or as many as are mapped from `address` on, or nil if not even the first is.
    func read(_ address: UInt, count: Int) -> [UInt8]? {
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            initialized = unsafe max(0, pread(file, buffer.baseAddress, count, off_t(bitPattern: address)))
        }
        return bytes.isEmpty ? nil : bytes
    }
}

/// - Returns: the whole of a file whose size is not known beforehand, or nil. Retries EINTR.
func readWholeFile(_ path: String) -> [UInt8]? {
    let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var whole: [UInt8] = []
    var part = [UInt8](repeating: 0, count: 64 * 1024)
    while true {
        let count = unsafe part.withUnsafeMutableBytes { unsafe Glibc.read(file, $0.baseAddress, $0.count) }
        if count < 0 && errno == EINTR { continue }
        if count < 0 { return nil }
        if count == 0 { return whole }
        whole += part[..<count]
    }
}
