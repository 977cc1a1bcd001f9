import Glibc

/// The processor time of the calling thread (clock_gettime(2)).
package enum ThreadClock {
    /// Nanoseconds since the thread began. One system call.
    package static var nanoseconds: UInt64 {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return UInt64(clamping: time.tv_sec) &* 1_000_000_000 &+ UInt64(clamping: time.tv_nsec)
    }
}
