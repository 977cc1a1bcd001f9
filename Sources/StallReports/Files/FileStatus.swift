internal import Glibc

/// What tells one version of a file from another.
struct FileStatus: Hashable {
    let inode: UInt64
    let size: Int
    let modified: Timestamp
    let isRegular: Bool
    let owner: UInt32
    let group: UInt32
    /// The permission bits alone.
    let mode: UInt32

    init(_ raw: stat) {
        inode = UInt64(raw.st_ino)
        size = Int(raw.st_size)
        modified = Timestamp(seconds: Int64(raw.st_mtim.tv_sec), nanoseconds: Int64(raw.st_mtim.tv_nsec))
        (owner, group, mode) = (raw.st_uid, raw.st_gid, raw.st_mode & 0o7777)
        isRegular = raw.st_mode & S_IFMT == S_IFREG
    }
}
