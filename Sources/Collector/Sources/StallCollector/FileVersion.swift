import Glibc

/// Distinguishes the versions of a file that an operator maintains.
///
/// Symbolic links are followed: Kubernetes mounts the files of a secret or a configuration as links. Their own mode permits
/// everything, and when the file changes, only the place to which they lead does.
struct FileVersion: Hashable {
    private let seconds: Int64
    private let nanoseconds: Int64
    private let device: UInt64
    private let number: UInt64
    private let size: Int64
    /// A file that was refused because others may read it is read again after chmod.
    private let mode: UInt32

    /// Nil if there is no such file.
    init?(_ path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        (seconds, nanoseconds) = (Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec))
        (device, number) = (UInt64(status.st_dev), UInt64(status.st_ino))
        (size, mode) = (Int64(status.st_size), UInt32(status.st_mode))
    }

    /// Whether users other than the file's owner and group may do anything with it.
    var isForEverybody: Bool { mode & 0o007 != 0 }
}
