internal import StallExport

/// One kind of shipment: its queue, and the state of the receiver for it. A receiver may accept one kind and not the other.
struct Lane {
    let signal: Telemetry.Signal
    /// How long the first shipment of a batch waits for others.
    let linger: Duration
    var queue = ShipmentQueue()
    /// Whether the receiver does not accept this kind at all.
    var isOff = false
    /// The number of consecutive failed attempts.
    private(set) var failures = 0
    private var backoff = Backoff()
    private var notBefore: ContinuousClock.Instant?
    private var firstAt: ContinuousClock.Instant?
    private var downSince: ContinuousClock.Instant?

    init(_ signal: Telemetry.Signal, linger: Duration) { (self.signal, self.linger) = (signal, linger) }

    /// Its name in messages.
    var kind: String { signal == .logs ? "stalls" : "run records" }

    mutating func add(_ shipment: Shipment, _ bytes: [UInt8]?) {
        if queue.count == 0 { firstAt = .now }
        queue.add(shipment, bytes)
    }

    /// When the next batch is due; nil if the queue is empty.
    func due(batch: Int) -> ContinuousClock.Instant? {
        guard queue.count > 0, let firstAt else { return nil }
        let ready = queue.count >= batch ? firstAt : firstAt + linger
        return max(ready, notBefore ?? ready)
    }

    /// - Returns: How long the receiver accepted nothing; nil if it was available.
    mutating func succeeded() -> Duration? {
        defer { (downSince, notBefore, failures) = (nil, nil, 0) }
        backoff.succeeded()
        return downSince.map { .now - $0 }
    }

    /// - Returns: The delay before the next attempt.
    mutating func failed(retryAfter: Duration?) -> Duration {
        let pause = backoff.failed(retryAfter: retryAfter)
        failures += 1
        notBefore = .now + pause
        downSince = downSince ?? .now
        return pause
    }

    /// Drops everything in the queue.
    mutating func switchOff() {
        isOff = true
        queue = ShipmentQueue()
    }
}
