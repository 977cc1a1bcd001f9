import CRunLoopPorts
import CRunLoopShims
import Glibc
public import RunLoopKit

/// The name under which processes of one user find a port. Compares byte by byte.
///
/// It becomes a file name in a ``PortDirectory`` and cannot leave that directory: 1 to 64 bytes of UTF-8, neither `.` nor `..`,
/// without `/` and NUL (R55).
public struct PortName: Hashable, Sendable {
    /// The longest name, in bytes: with it an address still fits into the kernel's 108.
    public static let maximumLength = 64

    /// The name as passed to the initialiser.
    public let text: String

    /// Throws `portNameInvalid`.
    public init(_ text: String) throws(RunLoopError) {
        let bytes = text.utf8
        guard 1...PortName.maximumLength ~= bytes.count, text != ".", text != "..",
            !bytes.contains(where: { $0 == 0 || $0 == UInt8(ascii: "/") })
        else { throw RunLoopError(.portNameInvalid) }
        self.text = text
    }

    /// Compares the bytes. (Strings compare by Unicode's canonical equivalence, file names do not.)
    public static func == (left: Self, right: Self) -> Bool { left.text.utf8.elementsEqual(right.text.utf8) }

    /// Hashes the bytes.
    public func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
    }

    /// The socket's file name. The suffixes distinguish a port named `a.lock` from the lock of `a`.
    var socketFile: String { text + ".port" }
    /// Locked as long as a process holds the name.
    var lockFile: String { text + ".lock" }
}

extension PortName: CustomStringConvertible {
    /// The plain name.
    public var description: String { text }
}

/// The directory of port names: it belongs to the user and has mode 0700 (R55).
///
/// It is created when first needed, and checked each time: it must be a directory and not a link, belong to the process's
/// effective user and be closed to all others; otherwise `portDirectoryUnsafe` is thrown. Needs /proc, through which its
/// sockets are reached however long the path is. Do not let a cleaner of old files delete in it while a port is alive.
public struct PortDirectory: Hashable, Sendable {
    /// The path as passed to the initialiser.
    public let path: String

    /// - Parameter path: Its parent must exist.
    public init(_ path: String) { self.path = path }

    /// `run-loop-ports` in `$XDG_RUNTIME_DIR`, or in /run/user/UID if that exists, otherwise /tmp/run-loop-ports-UID. Reads the
    /// environment: no other thread should change that at the same time.
    public static var `default`: PortDirectory {
        let user = geteuid()
        if let runtime = unsafe getenv("XDG_RUNTIME_DIR").map({ unsafe String(cString: $0) }), runtime.hasPrefix("/") {
            return PortDirectory(runtime + "/run-loop-ports")
        }
        if unsafe access("/run/user/\(user)", W_OK) == 0 { return PortDirectory("/run/user/\(user)/run-loop-ports") }
        return PortDirectory("/tmp/run-loop-ports-\(user)")
    }

    /// Opens the directory after checking its owner. The directory that was checked is the one used from then on, whatever the
    /// path refers to.
    func open() throws(RunLoopError) -> OwnedDescriptor {
        // An error shows below.
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
    func path(of file: String) -> String { "/proc/thread-self/fd/\(number)/\(file)" }
}

/// A process's claim on a name, for as long as the process lives: a lock on a file beside the socket (R55).
///
/// The kernel releases the lock when the holder dies, however it dies, so the process that gets the lock may remove what a dead
/// holder has left. Of two that try at the same time one gets it. A holder that releases the name removes the lock's file while
/// it holds the lock; a process that was waiting for that file finds that it is no longer the file of the name, and starts
/// again.
///
/// (A forked child that has not called exec shares its parent's lock until it closes its copy or ends. It never releases the
/// name, which is the parent's.)
final class NameClaim: Sendable {
    private let name: PortName
    private let directory: OwnedDescriptor
    private let lock: OwnedDescriptor
    private let generation = run_loop_generation()

    /// Throws `portNameInUse`, `portDirectoryUnsafe` or `outOfResources`.
    init(_ name: PortName, in directory: PortDirectory) throws(RunLoopError) {
        let handle = try directory.open()
        lock = try NameClaim.lock(name, in: handle)
        self.name = name
        self.directory = handle
    }

    deinit {
        // The lock belongs to the open file, which a forked child shares.
        guard generation == run_loop_generation() else { return }
        _ = unsafe unlinkat(directory.number, name.socketFile, 0)
        _ = unsafe unlinkat(directory.number, name.lockFile, 0)
        // Unlocked explicitly instead of by the close: another process may be between fork and exec and hold a copy.
        _ = flock(lock.number, LOCK_UN)
    }

    /// Binds the socket to the name and listens.
    func bind(_ socket: Int32) throws(RunLoopError) {
        _ = unsafe unlinkat(directory.number, name.socketFile, 0)
        let failure = unsafe run_loop_message_listen(socket, directory.path(of: name.socketFile))
        if failure < 0 { throw PortDirectory.error(-failure) }
    }

    private static func lock(
        _ name: PortName,
        in directory: borrowing OwnedDescriptor
    ) throws(RunLoopError) -> OwnedDescriptor {
        while true {
            let flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC
            let fd = unsafe openat(directory.number, name.lockFile, flags, 0o600)
            guard fd >= 0 else { throw PortDirectory.error(errno) }
            let file = OwnedDescriptor(fd)
            try take(file)
            if isCurrent(file, name, directory) { return file }
        }
    }

    private static func take(_ file: borrowing OwnedDescriptor) throws(RunLoopError) {
        while flock(file.number, LOCK_EX | LOCK_NB) != 0 {
            switch errno {
            case EINTR: continue
            case EWOULDBLOCK: throw RunLoopError(.portNameInUse)
            default: throw PortDirectory.error(errno)
            }
        }
    }

    /// Whether the locked file is still the file under the name.
    static func isCurrent(
        _ file: borrowing OwnedDescriptor,
        _ name: PortName,
        _ directory: borrowing OwnedDescriptor
    ) -> Bool {
        var locked = stat()
        var present = stat()
        guard unsafe fstat(file.number, &locked) == 0,
            unsafe fstatat(directory.number, name.lockFile, &present, AT_SYMLINK_NOFOLLOW) == 0
        else { return false }
        return locked.st_ino == present.st_ino && locked.st_dev == present.st_dev
    }
}

/// A descriptor that is closed when its owner is released.
struct OwnedDescriptor: ~Copyable, Sendable {
    let number: Int32

    /// Takes ownership of an open descriptor.
    init(_ number: Int32) { self.number = number }

    deinit { close(number) }
}
