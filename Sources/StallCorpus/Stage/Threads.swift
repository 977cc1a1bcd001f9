import CStallCorpus
import Glibc
import RunLoopKit

/// A detached thread with a name, which reports may show.
func startThread(named name: String, _ body: @escaping @Sendable () -> Void) {
    pthread_detach(JoinableThread(named: name, body).thread)
}

/// Gives the calling thread a name, 15 bytes at most.
func nameThread(_ name: String) {
    unsafe corpus_name_thread(name)
}

/// The calling thread sleeps until the time is over, whatever signals come.
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

/// Computes until the time has come.
@inline(never)
func spin(until end: MonotonicInstant) -> Int {
    var sum = 1
    while MonotonicInstant.now.nanoseconds < end.nanoseconds {
        for step in 0..<2_000 { sum = sum &* 31 &+ step }
    }
    return sum
}

/// Threads that keep every CPU busy, until they are let go.
final class BusyThreads: Sendable {
    private let flag = StopFlag()

    /// - Parameter cpu: the one they are bound to; nil for all.
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

/// Lets the calling thread run on one CPU only.
func bindThread(to cpu: Int) {
    corpus_bind_thread(Int32(cpu))
}
