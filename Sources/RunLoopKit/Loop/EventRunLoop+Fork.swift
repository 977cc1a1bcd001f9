internal import CRunLoopShims
import Locking
internal import Synchronization

// A forked child has one thread: a copy of the one that called fork. That thread's loop goes on there, with epoll sets of its own: to
// change the inherited ones would change the parent's. The other loops' threads are the parent's, and their locks may be held for
// ever: such a loop takes nothing, as one whose thread has ended (R3).

extension EventRunLoop {
    /// Whether the loop's thread did not come along when this process was forked. Takes no lock.
    var isOfParent: Bool {
        guard generation.load(ordering: .relaxed) != run_loop_generation() else { return false }
        // Only a main loop of a process that has loaded this library late has no pthread_t: then nobody but main itself can tell.
        return pthread.map { !run_loop_survived_fork($0) } ?? !run_loop_is_main_thread()
    }

    /// The loop's thread as it is in this process.
    var ownThread: LoopThread? {
        if generation.load(ordering: .relaxed) != run_loop_generation(), isOnOwnThread { adoptFork() }
        return owner.withLock { $0.thread }
    }

    /// The thread has a new number in the child. The loop's thread.
    func adoptFork() {
        generation.store(run_loop_generation(), ordering: .relaxed)
        owner.withLock { $0.thread = .current() }
    }
}
