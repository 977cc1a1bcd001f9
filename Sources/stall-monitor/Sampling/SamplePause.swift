#if Command
    import Glibc

    /// Waits that Ctrl-C ends, without a signal handler: the signals stay blocked, and the wait is for them.
    struct SamplePause {
        private let signals: sigset_t

        /// Blocks the signals on the calling thread, and on those that it makes later.
        init() {
            var set = sigset_t()
            unsafe sigemptyset(&set)
            for signal in [SIGINT, SIGTERM, SIGHUP] { unsafe sigaddset(&set, signal) }
            unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
            signals = set
        }

        /// - Parameter moment: on `now`'s clock. Past moments are fine.
        /// - Returns: whether it came to that moment; if not, the command is to end.
        func wait(until moment: Int64) -> Bool {
            var signals = signals
            while true {
                let rest = max(0, moment - Self.now)
                var time = timespec(tv_sec: Int(rest / 1_000_000_000), tv_nsec: Int(rest % 1_000_000_000))
                if unsafe sigtimedwait(&signals, nil, &time) > 0 { return false }
                if errno == EAGAIN { return true }
            }
        }

        /// Nanoseconds, monotonic.
        static var now: Int64 {
            var time = timespec()
            unsafe clock_gettime(CLOCK_MONOTONIC, &time)
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
    }
#endif
