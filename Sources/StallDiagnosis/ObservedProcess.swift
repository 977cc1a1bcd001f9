import Glibc

/// The process whose threads, descriptors and memory are meant: this one, or another one that is watched from outside.
package struct ObservedProcess: Hashable, Sendable {
    /// Nil for this one.
    package let otherID: Int32?

    package init(otherID: Int32?) { self.otherID = otherID }

    /// This process.
    package static let own = ObservedProcess(otherID: nil)

    /// Its files: proc(5).
    package var directory: String { otherID.map { "/proc/\($0)" } ?? "/proc/self" }
    package var processID: Int32 { otherID ?? getpid() }
}
