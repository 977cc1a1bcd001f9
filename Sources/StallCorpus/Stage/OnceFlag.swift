import Synchronization

/// Says true once.
final class OnceFlag: Sendable {
    private let taken = Atomic(false)

    func take() -> Bool { !taken.exchange(true, ordering: .acquiringAndReleasing) }
}

/// Told from one thread, asked on others.
final class StopFlag: Sendable {
    private let stopped = Atomic(false)

    var isStopped: Bool { stopped.load(ordering: .relaxed) }

    func stop() { stopped.store(true, ordering: .relaxed) }
}
