import Dispatch

/// Something that any number of threads wait for, and that happens once.
final class Gate: Sendable {
    private let group = DispatchGroup()
    private let once = OnceFlag()

    init() { group.enter() }

    /// Lets everybody through, now and later. Any thread; again does nothing.
    func open() {
        if once.take() { group.leave() }
    }

    /// Blocks the thread until it is open. Not for threads of tasks.
    func wait() { group.wait() }
}
