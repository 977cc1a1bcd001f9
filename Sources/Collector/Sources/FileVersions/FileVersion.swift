import Glibc

// A target of its own, which imports the C library alone. Where several imported modules have `stat`, the compiler takes one of them as its
// owner. Which one depends on the order in which it loads them, and it then demands an import of that one.

/// Which file a path names. A new file can get the number of a removed one: while that is open, it cannot.
package struct FileIdentity: Hashable, Sendable {
    private let device: UInt64
    private let number: UInt64

    /// Follows symbolic links. Nil if there is no such file, or it may not be seen.
    package init?(_ path: String) {
        guard let status = read(path) else { return nil }
        self.init(status)
    }

    fileprivate init(_ status: stat) { (device, number) = (UInt64(status.st_dev), UInt64(status.st_ino)) }
}

/// Distinguishes the versions of a file that an operator maintains.
///
/// Symbolic links are followed: Kubernetes mounts the files of a secret or a configuration as links. Their own mode permits
/// everything, and when the file changes, only the place to which they lead does.
package struct FileVersion: Hashable, Sendable {
    private let identity: FileIdentity
    private let seconds: Int64
    private let nanoseconds: Int64
    private let size: Int64
    /// Also the file's type. A file that was refused because others may read it is read again after chmod.
    private let mode: UInt32

    /// Nil if there is no such file, or it may not be seen.
    package init?(_ path: String) {
        guard let status = read(path) else { return nil }
        identity = FileIdentity(status)
        (seconds, nanoseconds) = (Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec))
        (size, mode) = (Int64(status.st_size), UInt32(status.st_mode))
    }

    /// Whether users other than the file's owner and group may do anything with it.
    package var isForEverybody: Bool { mode & 0o007 != 0 }

    package var isRegular: Bool { mode & UInt32(S_IFMT) == UInt32(S_IFREG) }

    /// The permission bits without those of everybody else.
    package var modeForOwnerAndGroup: UInt32 { mode & 0o7770 }
}

private func read(_ path: String) -> stat? {
    var status = stat()
    return unsafe stat(path, &status) == 0 ? status : nil
}
