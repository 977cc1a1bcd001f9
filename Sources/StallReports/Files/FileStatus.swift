internal import Glibc

/// What tells one version of a file from another.
struct FileStatus: Hashable {
    let inode: UInt64
    let size: Int
    let modified: Timestamp
    let isRegular: Bool

    init(_ raw: stat) {
        inode = UInt64(raw.st_ino)
        size = Int(raw.st_size)
        modified = Timestamp(seconds: Int64(raw.st_mtim.tv_sec), nanoseconds: Int64(raw.st_mtim.tv_nsec))
        isRegular = raw.st_mode & S_IFMT == S_IFREG
    }
}
