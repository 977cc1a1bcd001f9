import Glibc

/// A process's memory, read without ever faulting: `/proc/PID/mem` answers an unmapped address with an error.
struct ProcessMemory: ~Copyable {
    private let file: Int32

    /// Nil without `/proc`, or if another process's may not be read.
    init?(of process: ProcessDirectory) {
        file = unsafe open(process.path + "/mem", O_RDONLY | O_CLOEXEC)
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

/// Where `/proc` shows a process.
struct ProcessDirectory: Sendable, Hashable {
    let path: String

    static let own = ProcessDirectory(path: "/proc/self")

    init(processID: Int32) { self.init(path: "/proc/\(processID)") }

    private init(path: String) { self.path = path }

    /// The same file as the process itself sees it: it may live in another mount namespace or below another root directory.
    func file(_ path: String) -> String { self == .own ? path : "\(self.path)/root\(path)" }

    /// What the kernel calls the running executable, with its mark if it has been deleted.
    var executable: String? {
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) { buffer, initialized in
            initialized = unsafe buffer.withMemoryRebound(to: CChar.self) {
                unsafe max(0, readlink(path + "/exe", $0.baseAddress!, $0.count))
            }
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}

/// - Returns: the whole of a file whose size is not known beforehand, or nil. Retries EINTR.
func readWholeFile(_ path: String) -> [UInt8]? {
    let file = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
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
