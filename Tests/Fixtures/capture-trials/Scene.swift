import CTrials
import Dispatch
import Foundation

/// What a thread is executing when it is captured.
struct Scene: Sendable {
    enum Way: Sendable {
        /// Calls `Subject.loop`, on a separate thread or on the thread that the code switches to.
        case running(@Sendable () -> Void)
        /// The same for code that may suspend.
        case task(@Sendable () async -> Void)
        /// Blocks until it is released: once for each capture.
        case blocked(enter: @Sendable () -> Void, release: @Sendable () -> Void)
        /// A call of the matrix, by its index.
        case call(Int)
    }

    var name: String
    var way: Way
    /// One call of the repeated work, for walks at each instruction.
    var unit: (@Sendable () -> Void)?

    static func running(_ name: String, _ unit: @escaping @Sendable () -> Void) -> Scene {
        Scene(name: name, way: .running { onThread { Subject.loop(unit) } }, unit: unit)
    }

    static func onThread(_ body: @escaping @Sendable () -> Void) {
        let thread = Thread { body() }
        thread.stackSize = 8 << 20
        thread.start()
    }

    static var all: [Scene] { swift + foundation + dispatch + concurrency + c + blocked + calls }

    private static var c: [Scene] {
        let scenes = unsafe (0..<trial_c_scene_count).map { unsafe trial_scene_at(0, $0) }
        let others = unsafe (0..<trial_cpp_scene_count).map { unsafe trial_scene_at(1, $0) }
        return unsafe (scenes + others).map { scene in
            let run = unsafe scene.run
            return unsafe running(String(cString: scene.name)) { run() }
        }
    }

    /// The calls of the matrix that differ in the way they block.
    private static var calls: [Scene] {
        let names = [
            "nanosleep", "poll", "select", "epoll_wait", "sem_timedwait", "pthread_cond_timedwait",
            "recv, SO_RCVTIMEO",
            "read of a pipe", "write, half done", "splice", "read of an eventfd", "open of a FIFO",
            "accept", "connect",
            "send to a full TCP socket", "flock", "fcntl F_SETLKW", "io_uring_enter",
            "pthread_mutex_lock",
            "pthread_rwlock_rdlock", "pthread_join", "msgrcv", "semop", "pause", "sigsuspend", "waitpid",
            "waitid",
            "page fault",
        ]
        return (0..<trial_block_count()).compactMap { index in
            let name = unsafe String(cString: trial_block_name(index))
            return names.contains(name) ? Scene(name: "call: \(name)", way: .call(index)) : nil
        }
    }
}
