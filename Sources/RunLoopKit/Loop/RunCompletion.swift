internal import Synchronization

/// What a run waits for besides its timeout. Set once, from any thread; who sets it from another thread than the loop's wakes the loop
/// afterwards. The run notices at the end of the turn, also when a nested run was the one in which it was set.
final class RunCompletion: Sendable {
    private let flag = Atomic<Bool>(false)

    /// Acquiring: what was written before ``set()`` is visible after a true.
    var isSet: Bool { flag.load(ordering: .acquiring) }

    func set() { flag.store(true, ordering: .releasing) }
}
