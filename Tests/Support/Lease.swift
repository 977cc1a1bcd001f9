import Foundation
import Glibc

/// A lease on a file (fcntl(2), `F_SETLEASE`): while it is held, opening the file without waiting fails with EAGAIN. It stands for every
/// error that passes.
package final class Lease {
    private let file: Int32
    private var isHeld = false
    /// `F_SETSIG` and `F_SETLEASE`, which the C library's module lacks.
    private static let (setSignal, setLease): (Int32, Int32) = (10, 1024)

    /// The file must not be open anywhere. Nil if there are no leases.
    package init?(on path: String) {
        file = unsafe open(path, O_RDWR | O_CLOEXEC)
        // Whoever opens the file has a signal sent to the holder. The default one would end this process; this one is ignored.
        isHeld = fcntl(file, Self.setSignal, SIGWINCH) == 0 && fcntl(file, Self.setLease, F_WRLCK) == 0
        guard isHeld else { return nil }
    }

    package func end() { isHeld = fcntl(file, Self.setLease, F_UNLCK) != 0 }

    deinit { close(file) }

    /// Not every file system has leases.
    package static let isPermitted: Bool = {
        let path = "/dev/shm/lease-\(UUID())"
        close(unsafe open(path, O_WRONLY | O_CREAT, 0o600))
        defer { unsafe unlink(path) }
        return Lease(on: path) != nil
    }()
}
