internal import Glibc

/// Ends a wait of a ``ReportFollower`` from any thread: now, or the next one when none is under way. It stays cancelled.
public final class Cancellation: Sendable {
    /// Becomes readable, and stays so.
    let readEnd: Int32
    private let writeEnd: Int32

    init() throws(ReportError) {
        var ends: [Int32] = [-1, -1]
        try systemCall(path: nil) { unsafe pipe(&ends) }
        (readEnd, writeEnd) = (ends[0], ends[1])
        for end in ends {
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
        }
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Any thread, any number of times.
    public func cancel() {
        var byte: UInt8 = 1
        // A full pipe (EAGAIN) has been cancelled 65,536 times before.
        _ = unsafe write(writeEnd, &byte, 1)
    }
}
