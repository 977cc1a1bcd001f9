import Dispatch
import Glibc
import RunLoopKit
import Synchronization

/// A program whose `main` is async: Swift's tasks, the main queue and loops
/// pass work to each other, with a check of the thread at each point.
@main
struct Concurrency {
    static func main() async {
        switch CommandLine.arguments.dropFirst().first {
        case "hops": await hops()
        case "main-executor": await mainExecutor()
        case "assume-elsewhere": await elsewhere { camera in camera.assumeIsolated { $0.frames += 1 } }
        case "precondition-elsewhere": await elsewhere { camera in camera.preconditionIsolated() }
        case "race": race()
        case "contended": contended()
        default:
            print("unknown scenario")
            exit(64)
        }
    }

    /// A failed check must end the program.
    static func elsewhere(_ check: @Sendable @escaping (Camera) -> Void) async {
        // The runtime's own backtrace takes a while, and hangs in a sanitized program.
        signal(SIGILL, SIG_DFL)
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        unsafe setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
        let camera = Camera(LoopThread().loop)
        print("about to")
        fflush(nil)
        await Task.detached { check(camera) }.value
        print("passed")
    }
}

/// The calling thread, as the kernel reports it.
func currentThread() -> pthread_t { pthread_self() }

/// A thread that runs its loop until the program ends.
final class LoopThread: Sendable {
    let loop: EventRunLoop
    let thread: pthread_t

    init() {
        let ready = DispatchSemaphore(value: 0)
        let found = Mutex<(EventRunLoop, pthread_t)?>(nil)
        start {
            let loop = EventRunLoop.current
            loop.add(EventSource { _ in })
            found.withLock { $0 = (loop, pthread_self()) }
            ready.signal()
            loop.run()
        }
        ready.wait()
        guard let (loop, thread) = found.withLock({ $0 }) else { fatalError("no loop") }
        self.loop = loop
        self.thread = thread
    }
}

func start(_ body: @escaping @Sendable () -> Void) {
    var thread = pthread_t()
    let work = unsafe Unmanaged.passRetained(Work(body)).toOpaque()
    let failure = unsafe pthread_create(
        &thread,
        nil,
        { work in
            guard let work = unsafe work else { return nil }
            unsafe Unmanaged<Work>.fromOpaque(work).takeRetainedValue().body()
            return nil
        },
        work
    )
    precondition(failure == 0, "pthread_create: errno \(failure)")
    pthread_detach(thread)
}

private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

/// An actor pinned to a loop.
actor Camera {
    nonisolated let loop: EventRunLoop
    var frames = 0

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(_ loop: EventRunLoop) { self.loop = loop }

    func shoot() -> pthread_t {
        preconditionIsolated()
        frames += 1
        return pthread_self()
    }
}
