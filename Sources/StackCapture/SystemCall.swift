/// The system call that a thread sleeps in, from `/proc/self/task/TID/syscall`: proc(5).
public struct SystemCall: Sendable, Hashable {
    /// The kernel's number on this architecture.
    public var number: Int
    /// Always six, whatever the call takes; the rest is what the registers held. A descriptor is its call's first argument.
    public var arguments: [UInt]

    /// Nothing is defaulted or checked: six arguments are the caller's to give.
    public init(number: Int, arguments: [UInt]) {
        self.number = number
        self.arguments = arguments
    }

    /// The kernel's name: `read`, `futex`, `clock_nanosleep`. Nil for a number that this version does not know.
    public var name: String? { Self.name(of: number) }
}

extension SystemCall: CustomStringConvertible {
    /// The name, or `syscall_` and the number where the name is not known.
    public var description: String { name ?? "syscall_\(number)" }
}
