import Glibc
public import RunLoopKit

extension RunLoopError.Code {
    /// A port's name is empty, longer than 64 bytes, `.` or `..`, or contains a `/` or a NUL.
    public static let portNameInvalid = Self(
        "port_name_invalid",
        "A port's name has 1 to 64 bytes, and no slash or NUL; choose another."
    )
    /// A live process, possibly this one, has a port of this name (R55).
    public static let portNameInUse = Self(
        "port_name_in_use",
        "A live process has a port of this name; choose another name, or end that process."
    )
    /// The directory of the names does not belong to the user, is open to others, or cannot be used. See `errno`.
    public static let portDirectoryUnsafe = Self(
        "port_directory_unsafe",
        "The directory for port names must be the user's own with mode 0700; mend it or name another."
    )
    /// No process listens under the name.
    public static let noSuchPort = Self("no_such_port", "No process listens under this port name; start it first.")
    /// The port was invalid before the call (R56).
    public static let portInvalid = Self("port_invalid", "The port is invalid; connect again.")
    /// The port became invalid during the call: the other side has closed, or the port was invalidated (R56).
    public static let portBecameInvalid = Self(
        "port_became_invalid",
        "The port became invalid: the other side has gone, or it was invalidated here."
    )
    /// The other side did not accept the message in time: its queue is full (R56). Nothing was sent.
    public static let sendTimeout = Self(
        "send_timeout",
        "The receiver did not take the message in time; its queue is full."
    )
    /// The message was sent, and no reply arrived in time (R56). A later reply is dropped.
    public static let receiveTimeout = Self("receive_timeout", "The message was sent, but no reply came in time.")
    /// The kernel refused the message, for the reason in `errno` (R56). Nothing was sent.
    public static let transportError = Self("transport_error", "The kernel did not take the message.")
    /// The message is larger than `PortMessage/maximumSize`, or has more components than `PortMessage/maximumComponents` (R57).
    public static let messageTooLarge = Self(
        "message_too_large",
        "The message is too large; pass a descriptor of shared memory instead."
    )
    /// The message has more descriptors than `PortMessage/maximumDescriptors`.
    public static let tooManyDescriptors = Self(
        "too_many_descriptors",
        "One message carries at most 253 descriptors, the reply port's included; send several."
    )
}

extension RunLoopError {
    /// The meaning of a failed system call of a port, unless the caller knows a more specific one.
    static func port(_ errno: Int32) -> RunLoopError {
        switch errno {
        case EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC: RunLoopError(.outOfResources, errno: errno)
        default: RunLoopError(.transportError, errno: errno)
        }
    }
}
