import StallReports

/// How far a sampling is.
struct SampleProgress {
    private var line = TransientLine()
    private var shownAt: Int64 = .min
    private static let interval: Int64 = 200_000_000

    mutating func show(rounds: Int, elapsed: Int64, of length: Int64) {
        guard elapsed >= shownAt &+ Self.interval || shownAt == .min else { return }
        shownAt = elapsed
        let times = [elapsed, length].map { DurationText(nanoseconds: $0).short }
        line.show("\(rounds) samples, \(times[0]) of \(times[1]); Ctrl-C ends it")
    }

    mutating func end() { line.clear() }
}
