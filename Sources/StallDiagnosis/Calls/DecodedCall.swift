import Glibc
import StackCapture
package import StallReports

/// The arguments of a system call, read by its signature.
package struct DecodedCall: Hashable, Sendable {
    /// The arguments that could be read. Empty for a call without arguments; nil for an unknown call.
    package var arguments: [StallReport.Argument]?
    /// The descriptors among its arguments, the most important first.
    package var descriptors: [Int32] = []

    /// How many descriptors are taken from a list.
    private static let descriptorLimit = 8

    /// - Parameter read: Reads a number of bytes at an address. Nil if they cannot be read.
    init(_ call: SystemCall, read: (UInt, Int) -> [UInt8]?) {
        guard let signature = call.name.flatMap(CallSignature.of) else { return }
        var arguments: [StallReport.Argument] = []
        for (parameter, value) in zip(signature.parameters, call.arguments) {
            guard let parameter else { continue }
            let found = Self.descriptors(parameter.form, value, call, read)
            descriptors += found
            let text = Self.text(parameter.form, value, found, call, read)
            if !text.isEmpty { arguments.append(.init(name: parameter.name, value: text)) }
        }
        self.arguments = arguments
    }

    private static func descriptors(
        _ form: CallSignature.Form,
        _ value: UInt,
        _ call: SystemCall,
        _ read: (UInt, Int) -> [UInt8]?
    ) -> [Int32] {
        switch form {
        case .descriptor: [Int32(truncatingIfNeeded: value)].filter { $0 >= 0 }
        case .directory: []
        case .pollDescriptors: polled(value, count: call.arguments[1], read)
        case .descriptorSet: selected(value, count: call.arguments[0], read)
        default: []
        }
    }

    /// poll(2): `struct pollfd` is an `int` and two `short`s.
    private static func polled(_ address: UInt, count: UInt, _ read: (UInt, Int) -> [UInt8]?) -> [Int32] {
        let count = Int(min(count, UInt(descriptorLimit)))
        guard count > 0, let bytes = read(address, count * 8) else { return [] }
        return (0..<count).map { Int32(truncatingIfNeeded: bytes.number(at: $0 * 8, 4)) }.filter { $0 >= 0 }
    }

    /// select(2): a bit for each descriptor.
    private static func selected(_ address: UInt, count: UInt, _ read: (UInt, Int) -> [UInt8]?) -> [Int32] {
        let count = Int(min(count, 1024))
        guard address != 0, count > 0, let bytes = read(address, (count + 63) / 64 * 8) else { return [] }
        let set = (0..<count).filter { (number: Int) -> Bool in
            let mask: UInt8 = 1 << UInt8(number % 8)
            return bytes[number / 8] & mask != 0
        }
        return set.prefix(descriptorLimit).map { Int32($0) }
    }

    private static func text(
        _ form: CallSignature.Form,
        _ value: UInt,
        _ descriptors: [Int32],
        _ call: SystemCall,
        _ read: (UInt, Int) -> [UInt8]?
    ) -> String {
        switch form {
        case .descriptor, .signed: return "\(Int32(truncatingIfNeeded: value))"
        case .directory:
            let number = Int32(truncatingIfNeeded: value)
            return number == -100 ? "" : "\(number)"
        case .unsigned: return value > UInt(Int.max) ? "\(Int(bitPattern: value))" : "\(value)"
        case .address: return "0x" + String(value, radix: 16)
        case .milliseconds:
            let timeout = Int32(truncatingIfNeeded: value)
            return timeout < 0 ? "none" : DurationText(nanoseconds: Int64(timeout) * 1_000_000).short
        case .timespec: return time(value, unit: 1, read)
        case .timeval: return time(value, unit: 1000, read)
        case .path: return CText.path(at: value, read) ?? ""
        case .pollDescriptors, .descriptorSet: return descriptors.map(String.init).joined(separator: " ")
        case .socketAddress: return SocketAddress(at: value, length: length(of: call), read)?.text ?? ""
        case .names(let names): return names.text(names.areBits ? value & 0xffff_ffff : value)
        }
    }

    /// Seconds, and nanoseconds or microseconds, of 64 bits each.
    private static func time(_ address: UInt, unit: Int64, _ read: (UInt, Int) -> [UInt8]?) -> String {
        guard address != 0 else { return "none" }
        guard let bytes = read(address, 16) else { return "" }
        let seconds = Int64(bitPattern: bytes.number(at: 0, 8))
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let part = Int64(bitPattern: bytes.number(at: 8, 8))
        guard !overflow, seconds >= 0, (0..<1_000_000_000).contains(part) else { return "" }
        let (sum, carried) = scaled.addingReportingOverflow(part * unit)
        return carried ? "" : DurationText(nanoseconds: sum).short
    }

    /// The argument after an address is its length.
    private static func length(of call: SystemCall) -> Int {
        Int(clamping: call.name == "connect" ? call.arguments[2] : call.arguments[5])
    }
}

extension [UInt8] {
    /// A little-endian number of `size` bytes. The list must be long enough.
    package func number(at offset: Int, _ size: Int) -> UInt64 {
        (0..<size).reduce(0) { $0 | UInt64(self[offset + $1]) << UInt64($1 * 8) }
    }
}

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
