internal import CRunLoopShims
internal import Glibc

/// A process's hold on a name, for as long as it lives: a lock on a file beside the socket (R55).
///
/// The kernel lets go of the lock when the holder dies, however it dies, so whoever gets the lock may take away what a dead holder has
/// left. Of two that try at the same time one gets it. A holder that gives the name back removes the lock's file while it has the
/// lock; who was waiting for that file finds that it is no longer the one of the name, and starts again.
///
/// (A child that was forked and has not exec'd shares its parent's lock until it closes its copy or ends. It never gives the name back:
/// that is the parent's.)
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
        // Not left to the close: another process may be between fork and exec, and hold a copy.
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

    /// Whether the locked file is still the one under the name.
    private static func isCurrent(
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
