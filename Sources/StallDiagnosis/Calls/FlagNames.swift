import Glibc

/// Names for an argument's bits or values, from the kernel's headers.
struct FlagNames: Hashable, Sendable {
    /// Whether several may be set at once.
    let areBits: Bool
    /// In the order in which they are printed. May have a name for zero.
    private let names: [Name]
    /// Bits that are not printed.
    private let silent: UInt

    private struct Name: Hashable, Sendable {
        let value: UInt
        let mask: UInt
        let name: String
    }

    private init(bits: KeyValuePairs<UInt, String>, silent: UInt = 0) {
        areBits = true
        names = bits.map { Name(value: $0, mask: $0, name: $1) }
        self.silent = silent
    }

    /// - Parameter values: Values of the bits below `mask`; the bits above have their own names.
    private init(values: KeyValuePairs<UInt, String>, mask: UInt, bits: KeyValuePairs<UInt, String>) {
        areBits = true
        names =
            values.map { Name(value: $0, mask: mask, name: $1) } + bits.map { Name(value: $0, mask: $0, name: $1) }
        silent = 0
    }

    private init(values: KeyValuePairs<UInt, String>) {
        areBits = false
        names = values.map { Name(value: $0, mask: .max, name: $1) }
        silent = 0
    }

    /// `O_WRONLY|O_CREAT`, unknown bits in hexadecimal. Empty when no bit is set.
    func text(_ value: UInt) -> String {
        guard areBits else { return names.first { $0.value == value }?.name ?? "\(value)" }
        var rest = value & ~silent
        if rest == 0 { return names.first { $0.value == 0 }?.name ?? "" }
        var parts: [String] = []
        for name in names where name.mask != 0 && rest & name.mask == name.value {
            parts.append(name.name)
            rest &= ~name.mask
        }
        if rest != 0 { parts.append("0x" + String(rest, radix: 16)) }
        return parts.joined(separator: "|")
    }

    /// Keyed by the names of the forms in the table of calls.
    static let named: [String: FlagNames] = [
        "flock": FlagNames(bits: [1: "LOCK_SH", 2: "LOCK_EX", 8: "LOCK_UN", 4: "LOCK_NB"]),
        "open": open,
        "fcntl": FlagNames(values: [
            0: "F_DUPFD", 1: "F_GETFD", 2: "F_SETFD", 3: "F_GETFL", 4: "F_SETFL", 5: "F_GETLK", 6: "F_SETLK",
            7: "F_SETLKW", 36: "F_OFD_GETLK", 37: "F_OFD_SETLK", 38: "F_OFD_SETLKW", 1024: "F_SETLEASE",
            1030: "F_DUPFD_CLOEXEC",
        ]),
        "msg": FlagNames(bits: [
            0x1: "MSG_OOB", 0x2: "MSG_PEEK", 0x40: "MSG_DONTWAIT", 0x100: "MSG_WAITALL", 0x4000: "MSG_NOSIGNAL",
            0x8000: "MSG_MORE", 0x2000: "MSG_ERRQUEUE", 0x10000: "MSG_WAITFORONE", 0x4000_0000: "MSG_CMSG_CLOEXEC",
        ]),
        "sock": FlagNames(bits: [0o4000: "SOCK_NONBLOCK", 0o2000000: "SOCK_CLOEXEC"]),
        "wait": FlagNames(bits: [
            1: "WNOHANG", 2: "WUNTRACED", 4: "WEXITED", 8: "WCONTINUED", 0x0100_0000: "WNOWAIT",
            0x4000_0000: "__WALL", 0x8000_0000: "__WCLONE",
        ]),
        "idtype": FlagNames(values: [0: "P_ALL", 1: "P_PID", 2: "P_PGID", 3: "P_PIDFD"]),
        "msync": FlagNames(bits: [1: "MS_ASYNC", 2: "MS_INVALIDATE", 4: "MS_SYNC"]),
        "rwf": FlagNames(bits: [1: "RWF_HIPRI", 2: "RWF_DSYNC", 4: "RWF_SYNC", 8: "RWF_NOWAIT", 16: "RWF_APPEND"]),
        "splice": FlagNames(bits: [
            1: "SPLICE_F_MOVE", 2: "SPLICE_F_NONBLOCK", 4: "SPLICE_F_MORE", 8: "SPLICE_F_GIFT",
        ]),
        "clock": FlagNames(values: [
            0: "CLOCK_REALTIME", 1: "CLOCK_MONOTONIC", 2: "CLOCK_PROCESS_CPUTIME_ID", 3: "CLOCK_THREAD_CPUTIME_ID",
            7: "CLOCK_BOOTTIME", 11: "CLOCK_TAI",
        ]),
        "timer": FlagNames(bits: [1: "TIMER_ABSTIME"]),
        "epoll_ctl": FlagNames(values: [1: "EPOLL_CTL_ADD", 2: "EPOLL_CTL_DEL", 3: "EPOLL_CTL_MOD"]),
        "futex": FlagNames(
            values: [
                0: "FUTEX_WAIT", 1: "FUTEX_WAKE", 6: "FUTEX_LOCK_PI", 9: "FUTEX_WAIT_BITSET",
                11: "FUTEX_WAIT_REQUEUE_PI", 13: "FUTEX_LOCK_PI2",
            ],
            mask: 127,
            bits: [128: "FUTEX_PRIVATE_FLAG", 256: "FUTEX_CLOCK_REALTIME"]
        ),
        "uring": FlagNames(bits: [
            1: "IORING_ENTER_GETEVENTS", 2: "IORING_ENTER_SQ_WAKEUP", 4: "IORING_ENTER_SQ_WAIT",
        ]),
        "prot": FlagNames(bits: [0: "PROT_NONE", 1: "PROT_READ", 2: "PROT_WRITE", 4: "PROT_EXEC"]),
        "mmap": FlagNames(bits: [
            1: "MAP_SHARED", 2: "MAP_PRIVATE", 0x10: "MAP_FIXED", 0x20: "MAP_ANONYMOUS", 0x2000: "MAP_LOCKED",
            0x8000: "MAP_POPULATE", 0x4000: "MAP_NORESERVE", 0x2_0000: "MAP_STACK",
        ]),
        "getrandom": FlagNames(bits: [1: "GRND_NONBLOCK", 2: "GRND_RANDOM"]),
    ]

    /// Values that differ between architectures come from their headers. O_LARGEFILE and O_CLOEXEC do not matter for a wait.
    private static var open: FlagNames {
        let (directory, direct) = (UInt(O_DIRECTORY), UInt(O_DIRECTORY == 0o200000 ? 0o40000 : 0o200000))
        let largeFile: UInt = O_DIRECTORY == 0o200000 ? 0o100000 : 0o400000
        return FlagNames(
            bits: [
                0: "O_RDONLY", 0o1: "O_WRONLY", 0o2: "O_RDWR", 0o100: "O_CREAT", 0o200: "O_EXCL", 0o1000: "O_TRUNC",
                0o2000: "O_APPEND", 0o4000: "O_NONBLOCK", 0o4010000: "O_SYNC", 0o10000: "O_DSYNC",
                directory: "O_DIRECTORY", direct: "O_DIRECT", 0o10000000: "O_PATH",
            ],
            silent: largeFile | 0o2000000
        )
    }
}
