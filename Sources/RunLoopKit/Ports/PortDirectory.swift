internal import Glibc

/// Where the names of ports live: a directory of the user's own, with mode 0700 (R55).
///
/// It is made when first needed, and looked at each time: it must be a directory and no link, belong to the process's effective user
/// and be closed to all others, else `portDirectoryUnsafe` is thrown. Needs /proc, by which its sockets are reached however long the
/// path is. Do not let a cleaner of old files into it while a port is alive.
public struct PortDirectory: Hashable, Sendable {
    /// As given.
    public let path: String

    /// - Parameter path: Its parent must exist.
    public init(_ path: String) { self.path = path }

    /// `run-loop-ports` in `$XDG_RUNTIME_DIR`, or in /run/user/UID if there is one, else /tmp/run-loop-ports-UID. Reads the
    /// environment: no other thread should change that at the same time.
    public static var `default`: PortDirectory {
        let user = geteuid()
        if let runtime = unsafe getenv("XDG_RUNTIME_DIR").map({ unsafe String(cString: $0) }), runtime.hasPrefix("/") {
            return PortDirectory(runtime + "/run-loop-ports")
        }
        if unsafe access("/run/user/\(user)", W_OK) == 0 { return PortDirectory("/run/user/\(user)/run-loop-ports") }
        return PortDirectory("/tmp/run-loop-ports-\(user)")
    }

    /// Opens the directory after a look at whose it is. What was looked at is what is used from then on, whatever the path leads to.
    func open() throws(RunLoopError) -> OwnedDescriptor {
        // What is wrong with it shows below.
        _ = unsafe mkdir(path, 0o700)
        let fd = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard fd >= 0 else { throw PortDirectory.error(errno) }
        let directory = OwnedDescriptor(fd)
        var status = stat()
        guard unsafe fstat(fd, &status) == 0 else { throw PortDirectory.error(errno) }
        guard status.st_uid == geteuid(), status.st_mode & 0o077 == 0 else { throw RunLoopError(.portDirectoryUnsafe) }
        return directory
    }

    static func error(_ errno: Int32) -> RunLoopError {
        let error = RunLoopError.port(errno)
        return error.code == .outOfResources ? error : RunLoopError(.portDirectoryUnsafe, errno: errno)
    }
}

extension OwnedDescriptor {
    /// A path to a file in this directory, short enough for a socket's address.
    func path(of file: String) -> String { "/proc/self/fd/\(number)/\(file)" }
}
