import Glibc

/// The attributes that change when a file is replaced or written to.
struct FileStamp: Hashable, Sendable {
    var device: UInt64
    var inode: UInt64
    var size: Int64
    /// Separate from its nanoseconds: combined they could overflow for some file times.
    var modifiedSeconds: Int64
    var modifiedNanoseconds: Int64
    var isRegular: Bool

    /// Nil if there is no such file, or it may not be inspected.
    init?(_ path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        self.init(status)
    }

    init?(descriptor: Int32) {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { return nil }
        self.init(status)
    }

    private init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        (modifiedSeconds, modifiedNanoseconds) = (Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec))
        isRegular = status.st_mode & S_IFMT == S_IFREG
    }
}
