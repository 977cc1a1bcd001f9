internal import StallExport

/// One kind of thing to send: what waits, and how the receiver takes it. A receiver may take one kind and not the other.
struct Lane {
    let signal: Telemetry.Signal
    /// How long the first of a batch waits for others.
    let linger: Duration
    var queue = ShipmentQueue()
    /// Whether the receiver has no place for it at all.
    var isOff = false
    /// Tries in a row that failed.
    private(set) var failures = 0
    private var backoff = Backoff()
    private var notBefore: ContinuousClock.Instant?
    private var firstAt: ContinuousClock.Instant?
    private var downSince: ContinuousClock.Instant?

    init(_ signal: Telemetry.Signal, linger: Duration) { (self.signal, self.linger) = (signal, linger) }

    /// What it is called in messages.
    var kind: String { signal == .logs ? "stalls" : "run records" }

    mutating func add(_ shipment: Shipment, _ bytes: [UInt8]?) {
        if queue.count == 0 { firstAt = .now }
        queue.add(shipment, bytes)
    }

    /// When it is time to send; nil while nothing waits.
    func due(batch: Int) -> ContinuousClock.Instant? {
        guard queue.count > 0, let firstAt else { return nil }
        let ready = queue.count >= batch ? firstAt : firstAt + linger
        return max(ready, notBefore ?? ready)
    }

    /// - Returns: how long the receiver took nothing, if it did not.
    mutating func succeeded() -> Duration? {
        defer { (downSince, notBefore, failures) = (nil, nil, 0) }
        backoff.succeeded()
        return downSince.map { .now - $0 }
    }

    /// - Returns: how long until the next try.
    mutating func failed(retryAfter: Duration?) -> Duration {
        let pause = backoff.failed(retryAfter: retryAfter)
        failures += 1
        notBefore = .now + pause
        downSince = downSince ?? .now
        return pause
    }

    /// Everything that waits is given up.
    mutating func switchOff() {
        isOff = true
        queue = ShipmentQueue()
    }
}
