internal import CRunLoopShims
import Locking
internal import Synchronization

// A forked child has one thread: a copy of the one that called fork. That thread's loop continues there, with epoll sets of its
// own: changing the inherited sets would change the parent's. The threads of the other loops do not exist in the child, and
// their locks may be held forever. Such a loop accepts nothing, like one whose thread has ended (R3).

extension EventRunLoop {
    /// Whether the loop's thread does not exist in this process because of a fork. Takes no lock.
    var isOfParent: Bool {
        guard generation.load(ordering: .relaxed) != run_loop_generation() else { return false }
        // Only the main loop of a process that loaded this library late has no pthread_t; then only the main thread
        // itself can answer.
        return pthread.map { !run_loop_survived_fork($0) } ?? !run_loop_is_main_thread()
    }

    /// The loop's thread as it is in this process.
    var ownThread: LoopThread? {
        if generation.load(ordering: .relaxed) != run_loop_generation(), isOnOwnThread { adoptFork() }
        return owner.withLock { $0.thread }
    }

    /// The thread has a new thread id in the child. The loop's thread.
    func adoptFork() {
        generation.store(run_loop_generation(), ordering: .relaxed)
        owner.withLock { $0.thread = .current() }
    }
}
