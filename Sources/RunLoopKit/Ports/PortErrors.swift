internal import Glibc

extension RunLoopError.Code {
    /// A port's name is empty, longer than 64 bytes, `.` or `..`, or has a `/` or a NUL in it.
    public static let portNameInvalid = Self(name: "portNameInvalid")
    /// A live process, perhaps this one, has a port of this name (R55).
    public static let portNameInUse = Self(name: "portNameInUse")
    /// The directory of the names is not the user's own, is open to others, or cannot be used. See `errno`.
    public static let portDirectoryUnsafe = Self(name: "portDirectoryUnsafe")
    /// Nobody listens under the name.
    public static let noSuchPort = Self(name: "noSuchPort")
    /// The port was invalid before the call (R56).
    public static let portInvalid = Self(name: "portInvalid")
    /// The port became invalid during the call: the other side is gone, or it was invalidated (R56).
    public static let portBecameInvalid = Self(name: "portBecameInvalid")
    /// The other side did not take the message in time: its queue is full (R56). Nothing was sent.
    public static let sendTimeout = Self(name: "sendTimeout")
    /// The message was sent, and no reply came in time (R56). One that comes later is dropped.
    public static let receiveTimeout = Self(name: "receiveTimeout")
    /// The kernel refused the message, for the reason in `errno` (R56). Nothing was sent.
    public static let transportError = Self(name: "transportError")
    /// The message is larger than ``PortMessage/maximumSize``, or has more components than ``PortMessage/maximumComponents`` (R57).
    public static let messageTooLarge = Self(name: "messageTooLarge")
    /// The message has more descriptors than ``PortMessage/maximumDescriptors``.
    public static let tooManyDescriptors = Self(name: "tooManyDescriptors")
}

extension RunLoopError {
    static let portAdvice: [Code: String] = [
        .portNameInvalid: "A port's name has 1 to 64 bytes, and no slash or NUL; choose another.",
        .portNameInUse: "A live process has a port of this name; choose another name, or end that process.",
        .portDirectoryUnsafe:
            "The directory for port names must be the user's own with mode 0700; mend it or name another.",
        .noSuchPort: "No process listens under this port name; start it first.",
        .portInvalid: "The port is invalid; connect again.",
        .portBecameInvalid: "The port became invalid: the other side has gone, or it was invalidated here.",
        .sendTimeout: "The receiver did not take the message in time; its queue is full.",
        .receiveTimeout: "The message was sent, but no reply came in time.",
        .transportError: "The kernel did not take the message.",
        .messageTooLarge: "The message is too large; pass a descriptor of shared memory instead.",
        .tooManyDescriptors: "One message carries at most 253 descriptors, the reply port's included; send several.",
    ]

    /// What a failed system call of a port's means, apart from what the call itself knows better.
    static func port(_ errno: Int32) -> RunLoopError {
        switch errno {
        case EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC: RunLoopError(.outOfResources, errno: errno)
        default: RunLoopError(.transportError, errno: errno)
        }
    }
}
