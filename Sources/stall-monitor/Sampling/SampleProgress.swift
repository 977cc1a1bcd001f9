#if Command
    import Glibc
    import StallReports

    /// One line on standard error that is written over, where that is a terminal.
    struct SampleProgress {
        private let isShown = isatty(STDERR_FILENO) == 1
        private var shownAt: Int64 = .min
        private static let interval: Int64 = 200_000_000

        mutating func show(rounds: Int, elapsed: Int64, of length: Int64) {
            guard isShown, elapsed >= shownAt &+ Self.interval || shownAt == .min else { return }
            shownAt = elapsed
            let times = [elapsed, length].map { DurationText(nanoseconds: $0).short }
            put("\r\u{1B}[K\(rounds) samples, \(times[0]) of \(times[1]); Ctrl-C ends it")
        }

        func end() {
            if isShown, shownAt != .min { put("\r\u{1B}[K") }
        }

        private func put(_ text: String) {
            var text = text
            text.withUTF8 { unsafe _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
        }
    }
#endif
