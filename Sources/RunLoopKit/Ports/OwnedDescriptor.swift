internal import Glibc

/// A descriptor that is closed when its owner goes.
struct OwnedDescriptor: ~Copyable, Sendable {
    let number: Int32

    /// Takes over an open descriptor.
    init(_ number: Int32) { self.number = number }

    deinit { close(number) }
}
