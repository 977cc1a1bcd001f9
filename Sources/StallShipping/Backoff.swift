/// The delay before the next attempt: twice as long each time, up to a minute, and random within the upper half, so that the
/// hosts of a fleet do not return all at once.
struct Backoff {
    private var failures = 0

    /// The longest delay that a receiver may request.
    static let longest = Duration.seconds(3600)

    mutating func succeeded() { failures = 0 }

    /// - Parameter retryAfter: The receiver's requested delay: no attempt before that.
    mutating func failed(retryAfter: Duration?) -> Duration {
        failures += 1
        let full = Double(min(60, 1 << min(failures - 1, 6)))
        let chosen = Duration.seconds(Double.random(in: full / 2...full))
        return max(chosen, min(retryAfter ?? .zero, Self.longest) * Double.random(in: 1...1.1))
    }
}
