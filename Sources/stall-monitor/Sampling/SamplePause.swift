#if Command
    import Glibc

    /// Waits that Ctrl-C ends: from here on the signal no longer ends the process by itself.
    struct SamplePause {
        init() {
            // Touched here, so that the handler does not make it.
            precondition(interruptions.read >= 0, "no file descriptor is left for a pipe")
            for number in [SIGINT, SIGTERM, SIGHUP] { signal(number, takeNote) }
        }

        /// - Parameter moment: on `now`'s clock. Past moments are fine.
        /// - Returns: whether it came to that moment; if not, the command is to end.
        func wait(until moment: Int64) -> Bool {
            var interruption = pollfd(fd: interruptions.read, events: Int16(POLLIN), revents: 0)
            while true {
                let rest = max(0, moment - Self.now)
                // In whole milliseconds, which poll(2) does not end early; what is left is too short to be waited for otherwise.
                let count = unsafe poll(&interruption, 1, Int32(min(rest / 1_000_000, 1_000_000)))
                if count > 0 { return false }
                if rest < 1_000_000 {
                    var time = timespec(tv_sec: 0, tv_nsec: Int(rest))
                    unsafe nanosleep(&time, nil)
                    return true
                }
            }
        }

        /// Nanoseconds, monotonic.
        static var now: Int64 {
            var time = timespec()
            unsafe clock_gettime(CLOCK_MONOTONIC, &time)
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
    }

    /// Readable from the first signal on. For as long as the process lives.
    private let interruptions: (read: Int32, write: Int32) = {
        var ends: [Int32] = [-1, -1]
        unsafe pipe(&ends)
        for end in ends { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
        return (ends[0], ends[1])
    }()

    /// A signal handler: one write, nothing else.
    private func takeNote(_ signal: Int32) {
        let error = errno
        var byte: UInt8 = 1
        _ = unsafe write(interruptions.write, &byte, 1)
        errno = error
    }
#endif
