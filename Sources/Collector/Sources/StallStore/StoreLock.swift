import Glibc

/// The sign that a process serves a store's file: two collectors on one file would send each alert twice. SQLite itself lets any number of
/// processes open it, as a backup does.
///
/// It is a lock (flock(2)) on a file beside the store's, `stalls.db.lock`, which stays there. The kernel releases the lock when the process
/// ends, however it ends. A lock on the store's own file would interfere with SQLite's: closing that file releases them.
package final class StoreLock: Sendable {
    private let descriptor: Int32
    /// False where the file system has no locks: whether another process serves the store is then not known.
    package let isCertain: Bool

    private init(_ descriptor: Int32, isCertain: Bool) {
        (self.descriptor, self.isCertain) = (descriptor, isCertain)
    }

    deinit { close(descriptor) }

    /// Nil if another one has it.
    ///
    /// - Parameter path: The store's file, which need not exist.
    /// - Throws: ``StoreError`` if the lock's file cannot be opened.
    package static func take(_ path: String) throws(StoreError) -> StoreLock? {
        let file = file(of: path)
        // A program that an alert starts must not keep the lock.
        let descriptor = unsafe open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            let reason = unsafe String(cString: strerror(errno))
            throw StoreError("the store \(path) cannot be used: \(file) cannot be opened: \(reason)")
        }
        // As SQLite does with its own files: if root starts it once by hand, the service's user can open the file all the same.
        var owner = stat()
        if geteuid() == 0, unsafe stat(path, &owner) == 0 { _ = fchown(descriptor, owner.st_uid, owner.st_gid) }
        if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { return StoreLock(descriptor, isCertain: true) }
        guard errno == EWOULDBLOCK else { return StoreLock(descriptor, isCertain: false) }
        close(descriptor)
        return nil
    }

    /// Waits until the lock is free. Nil if another one still holds it after that time.
    package static func wait(for path: String, _ patience: Duration) async throws -> StoreLock? {
        let end = ContinuousClock.now + patience
        while true {
            if let lock = try take(path) { return lock }
            guard ContinuousClock.now < end else { return nil }
            try await Task.sleep(for: .milliseconds(100))
        }
    }

    /// Beside the file itself, whatever link leads to it.
    private static func file(of path: String) -> String {
        guard let real = unsafe realpath(path, nil) else { return path + ".lock" }
        defer { unsafe free(real) }
        return unsafe String(cString: real) + ".lock"
    }
}
