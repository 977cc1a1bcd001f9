import CStallCorpus
import Dispatch
import Glibc
import RunLoopKit
import Synchronization

/// Starts a detached thread with a name, which reports may show.
func startThread(named name: String, _ body: @escaping @Sendable () -> Void) {
    pthread_detach(JoinableThread(named: name, body).thread)
}

/// Gives the calling thread a name, 15 bytes at most.
func nameThread(_ name: String) {
    unsafe corpus_name_thread(name)
}

/// The calling thread sleeps for the whole duration, even if signals arrive.
func sleepFor(_ duration: Duration) {
    sleepUntil(.now.advanced(by: duration))
}

func sleepUntil(_ instant: MonotonicInstant) {
    var time = timespec(
        tv_sec: Int(instant.nanoseconds / 1_000_000_000),
        tv_nsec: Int(instant.nanoseconds % 1_000_000_000)
    )
    while unsafe clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil) == EINTR {}
}

/// Computes until the time is reached.
@inline(never)
func spin(until end: MonotonicInstant) -> Int {
    var sum = 1
    while MonotonicInstant.now.nanoseconds < end.nanoseconds {
        for step in 0..<2_000 { sum = sum &* 31 &+ step }
    }
    return sum
}

/// Threads that keep every CPU busy until they are stopped.
final class BusyThreads: Sendable {
    private let flag = StopFlag()

    /// - Parameter cpu: The CPU to which they are bound; nil for all.
    init(_ count: Int, cpu: Int? = nil) {
        for index in 0..<count {
            startThread(named: "busy-\(index)") { [flag] in
                if let cpu { bindThread(to: cpu) }
                while !flag.isStopped { keep(spin(until: .now.advanced(by: .milliseconds(5)))) }
            }
        }
    }

    func stop() { flag.stop() }

    deinit { flag.stop() }
}

/// Binds the calling thread to one CPU.
func bindThread(to cpu: Int) {
    corpus_bind_thread(Int32(cpu))
}

/// An event that happens once and that any number of threads can wait for.
final class Gate: Sendable {
    private let group = DispatchGroup()
    private let once = OnceFlag()

    init() { group.enter() }

    /// Releases all waiting threads, now and in future. Any thread; a second call has no effect.
    func open() {
        if once.take() { group.leave() }
    }

    /// Blocks the thread until it is open. Not for threads that run tasks.
    func wait() { group.wait() }
}

/// Returns true once.
final class OnceFlag: Sendable {
    private let taken = Atomic(false)

    func take() -> Bool { !taken.exchange(true, ordering: .acquiringAndReleasing) }
}

/// Set on one thread, read on others.
final class StopFlag: Sendable {
    private let stopped = Atomic(false)

    var isStopped: Bool { stopped.load(ordering: .relaxed) }

    func stop() { stopped.store(true, ordering: .relaxed) }
}

/// A thread that can be joined.
final class JoinableThread: Sendable {
    let thread: pthread_t

    init(named name: String, _ body: @escaping @Sendable () -> Void) {
        final class Start {
            let (name, body): (String, @Sendable () -> Void)
            init(_ name: String, _ body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }
        }
        var thread = pthread_t()
        let start = unsafe Unmanaged.passRetained(Start(name, body)).toOpaque()
        let error = unsafe pthread_create(
            &thread,
            nil,
            { argument in
                let start = unsafe Unmanaged<Start>.fromOpaque(argument!).takeRetainedValue()
                nameThread(start.name)
                start.body()
                return nil
            },
            start
        )
        precondition(error == 0, "the machine has no thread for a scenario")
        self.thread = thread
    }
}
