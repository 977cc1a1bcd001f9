import Glibc

/// A file descriptor with one owner; it is closed with its owner.
package struct OpenFile: ~Copyable {
    package let descriptor: Int32
    /// For error texts only.
    let path: String

    package init(owning descriptor: Int32, path: String) { (self.descriptor, self.path) = (descriptor, path) }

    deinit { close(descriptor) }

    /// Writes everything, in as many calls as necessary.
    func write(_ bytes: [UInt8]) throws(ReportError) {
        var written = 0
        while written < bytes.count {
            written += try systemCall(path: path) {
                unsafe bytes[written...].withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
            }
        }
    }

    /// Reads to the end, or throws `.tooLarge` as soon as there are more than `limit` bytes.
    package func readAll(limit: Int) throws(ReportError) -> [UInt8] {
        let size = try status().size
        guard size <= limit else { throw ReportError(.tooLarge, path: path) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: Swift.max(4096, size + 1))
        while true {
            let count = try systemCall(path: path) {
                unsafe chunk.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress, $0.count) }
            }
            if count == 0 { return bytes }
            bytes += chunk[..<count]
            guard bytes.count <= limit else { throw ReportError(.tooLarge, path: path) }
        }
    }

    /// Returns after the file's bytes are on the disk.
    func synchronize() throws(ReportError) {
        try systemCall(path: path) { fsync(descriptor) }
    }

    package func status() throws(ReportError) -> FileStatus {
        var raw = stat()
        try systemCall(path: path) { unsafe fstat(descriptor, &raw) }
        return FileStatus(raw)
    }

    /// Gives the file the other one's owner, group and mode. Throws `.permissionDenied` if that needs a privilege.
    func giveTo(_ other: FileStatus) throws(ReportError) {
        let mine = try status()
        if mine.owner != other.owner || mine.group != other.group {
            try systemCall(path: path) { fchown(descriptor, other.owner, other.group) }
        }
        if mine.mode != other.mode { try systemCall(path: path) { fchmod(descriptor, other.mode) } }
    }

    /// Takes the file's lock if it is free. The lock is released with the descriptor, so a dead process holds none (flock(2)).
    func tryLock() -> Bool {
        flock(descriptor, LOCK_EX | LOCK_NB) == 0
    }
}

/// Identifies a file, a directory or a socket, whatever its names are.
package struct FileIdentity: Hashable, Sendable {
    private let device: UInt64
    let inode: UInt64

    init(_ raw: stat) { (device, inode) = (UInt64(raw.st_dev), UInt64(raw.st_ino)) }

    /// Nil if the descriptor is not open.
    package init?(descriptor: Int32) {
        var raw = stat()
        guard unsafe fstat(descriptor, &raw) == 0 else { return nil }
        self.init(raw)
    }

    /// That of a link itself, if the path is one. Nil if there is none, or it may not be seen: `errno` says which.
    package init?(path: String) {
        var raw = stat()
        guard unsafe lstat(path, &raw) == 0 else { return nil }
        self.init(raw)
    }
}

/// Identifies one version of a file.
package struct FileStatus: Hashable, Sendable {
    package let inode: UInt64
    package let size: Int
    package let modified: Timestamp
    package let isRegular: Bool
    let owner: UInt32
    let group: UInt32
    /// Only the permission bits.
    let mode: UInt32

    init(_ raw: stat) {
        inode = UInt64(raw.st_ino)
        size = Int(raw.st_size)
        modified = Timestamp(raw.st_mtim)
        (owner, group, mode) = (raw.st_uid, raw.st_gid, raw.st_mode & 0o7777)
        isRegular = raw.st_mode & S_IFMT == S_IFREG
    }
}

/// Makes a system call that returns −1 on failure. Repeats it if a signal interrupted it, and throws for any other `errno`.
@discardableResult
package func systemCall<Result: SignedInteger>(path: String?, _ call: () -> Result) throws(ReportError) -> Result {
    while true {
        let result = call()
        if result >= 0 { return result }
        let number = errno
        if number != EINTR { throw ReportError(errno: number, path: path) }
    }
}

/// The text at the start of a small file, of /proc or a control group. Nil if it cannot be read. Does not wait: the kernel
/// produces such files when they are read. One read(2) of 4096 bytes: the kernel returns at most a page.
package func readSmallFile(_ path: String) -> String? {
    unsafe withStartOfFile(path, limit: 4096) { unsafe String(decoding: $0, as: UTF8.self) }
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

/// The text of a file of several pages. Nil if it cannot be read.
///
/// - Parameters:
///   - limit: The largest number of bytes to read.
///   - isWhole: Whether a longer file counts as unreadable.
package func readFile(_ path: String, limit: Int, isWhole: Bool = true) -> String? {
    let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    // The kernel returns at most a page at a time. One byte more than the limit shows that the file is longer.
    while bytes.count <= limit {
        let start = bytes.count
        let size = min(4096, limit + 1 - start)
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

/// The text of a small file of /proc, without its last line feed; nil if it cannot be read.
package func readProcFile(_ path: String) -> String? {
    guard let text = readSmallFile(path) else { return nil }
    return text.hasSuffix("\n") ? String(text.dropLast()) : text
}

/// The control groups of a process or thread, from its directory in /proc (cgroups(7)). Nil if they cannot be read.
///
/// Version 1 has a line for each of a dozen hierarchies. For a container in a container that is more than a page.
package func readControlGroups(in directory: String) -> String? { readFile(directory + "/cgroup", limit: 1 << 20) }

/// The entries of a directory of /proc whose names are numbers: processes, threads, descriptors. Nil if it cannot be read.
package func readProcNumbers(_ path: String) -> [Int32]? {
    (try? OpenDirectory(path: path).names())?.compactMap { Int32($0) }
}

/// The end of the path of a deleted file, as the kernel writes it (proc(5)). A file's name can end in the same words.
package let deletedFileMark = " (deleted)"

/// The target of a link of /proc; nil if it cannot be read.
package func readProcLink(_ path: String) -> String? {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = unsafe buffer.withUnsafeMutableBytes { bytes in
        unsafe readlink(path, bytes.bindMemory(to: CChar.self).baseAddress!, bytes.count)
    }
    return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
}
