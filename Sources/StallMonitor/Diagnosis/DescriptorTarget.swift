import Glibc
import StackCapture

/// What a descriptor named by a system call stands for.
enum DescriptorTarget {
    /// Calls whose first argument is a descriptor that can make them wait.
    private static let calls: Set<String> = [
        "accept", "accept4", "connect", "copy_file_range", "epoll_pwait", "epoll_pwait2", "epoll_wait", "fallocate",
        "fcntl", "fdatasync", "flock", "fsync", "ftruncate", "getdents64", "ioctl", "pread64", "preadv", "preadv2",
        "pwrite64", "pwritev", "pwritev2", "read", "readv", "recvfrom", "recvmmsg", "recvmsg", "sendfile", "sendmmsg",
        "sendmsg", "sendto", "splice", "sync_file_range", "syncfs", "tee", "write", "writev",
    ]

    /// The descriptor a call waits on. Nil for a call on none.
    static func descriptor(of call: SystemCall) -> Int32? {
        guard let name = call.name, calls.contains(name), let first = call.arguments.first else { return nil }
        return Int32(truncatingIfNeeded: first)
    }

    /// The path, `pipe:[…]` or `socket:[…]` behind the descriptor a call waits on (proc(5), `/proc/self/fd`). To be read while the
    /// thread still waits: later the number may stand for something else.
    static func read(for call: SystemCall) -> String? {
        guard let descriptor = descriptor(of: call) else { return nil }
        return unsafe withUnsafeTemporaryAllocation(byteCount: Int(PATH_MAX), alignment: 1) { buffer in
            let path = "/proc/self/fd/\(descriptor)"
            let count = unsafe readlink(path, buffer.baseAddress!, buffer.count)
            guard count > 0 else { return nil }
            return unsafe String(decoding: buffer[..<count], as: UTF8.self)
        }
    }
}
