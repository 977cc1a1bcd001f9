/// The name under which processes of one user find a port. Compares byte by byte.
///
/// It becomes a file name in a ``PortDirectory`` and cannot leave that: 1 to 64 bytes of UTF-8, neither `.` nor `..`, without `/` and
/// NUL (R55).
public struct PortName: Hashable, Sendable {
    /// The longest name, in bytes: with it an address still fits into the kernel's 108.
    public static let maximumLength = 64

    /// As given.
    public let text: String

    /// Throws `portNameInvalid`.
    public init(_ text: String) throws(RunLoopError) {
        let bytes = text.utf8
        guard 1...PortName.maximumLength ~= bytes.count, text != ".", text != "..",
            !bytes.contains(where: { $0 == 0 || $0 == UInt8(ascii: "/") })
        else { throw RunLoopError(.portNameInvalid) }
        self.text = text
    }

    /// The same bytes. (Strings compare by Unicode's canonical equivalence, file names do not.)
    public static func == (left: Self, right: Self) -> Bool { left.text.utf8.elementsEqual(right.text.utf8) }

    /// Of the bytes.
    public func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
    }

    /// Where the socket is. The suffixes keep a port named `a.lock` apart from the lock of `a`.
    var socketFile: String { text + ".port" }
    /// Locked as long as a process holds the name.
    var lockFile: String { text + ".lock" }
}

extension PortName: CustomStringConvertible {
    /// The bare name.
    public var description: String { text }
}
