import StallExport
import StallReports

// What waits for a receiver.

/// One kind of shipment: its queue, and the state of the receiver for it. A receiver may accept one kind and not the other.
struct Outbox {
    let signal: Telemetry.Signal
    /// How long the first shipment of a batch waits for others.
    let linger: Duration
    var queue = ShipmentQueue()
    /// Whether the receiver does not accept this kind at all.
    var isOff = false
    private var backoff = Backoff()
    private var notBefore: ContinuousClock.Instant?
    /// The same, as far as the receiver has asked for it.
    private var askedNotBefore: ContinuousClock.Instant?
    private var firstAt: ContinuousClock.Instant?
    private var downSince: ContinuousClock.Instant?

    init(_ signal: Telemetry.Signal, linger: Duration) { (self.signal, self.linger) = (signal, linger) }

    /// The number of consecutive failed attempts.
    var failures: Int { backoff.failures }

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

    /// - Returns: How long the receiver had accepted nothing. Nil if it was available.
    mutating func succeeded() -> Duration? {
        defer { (downSince, notBefore, askedNotBefore) = (nil, nil, nil) }
        backoff.succeeded()
        return downSince.map { .now - $0 }
    }

    /// Puts the next attempt off, although the receiver is available.
    mutating func pause() {
        notBefore = .now + backoff.failed(retryAfter: nil)
    }

    /// - Returns: The delay before the next attempt.
    mutating func failed(retryAfter: Duration?) -> Duration {
        let pause = backoff.failed(retryAfter: retryAfter)
        notBefore = .now + pause
        askedNotBefore = retryAfter.map { .now + min($0, Backoff.longest) }
        downSince = downSince ?? .now
        return pause
    }

    /// Ends the delay after a failure, as far as the receiver has not asked for it.
    mutating func hasten() { notBefore = askedNotBefore }

    /// Drops everything in the queue.
    mutating func switchOff() {
        isOff = true
        queue = ShipmentQueue()
    }
}

/// The delay before the next attempt: twice as long each time, up to a minute, and random within the upper half, so that the
/// hosts of a fleet do not return all at once.
struct Backoff {
    private(set) var failures = 0

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

/// One item to send: a version of a stall's report, or of a run's record.
struct Shipment: Hashable {
    let id: ULID
    let version: Version
    /// The directory of its file.
    let directory: String

    /// The version that was sent.
    enum Version: Hashable, Comparable {
        /// While the stall lasts.
        case ongoing
        /// The stall has ended, and its fault's identity was made without names: a command may add them.
        case provisional
        case ended
        /// A run's counts, by the time at which they were current, in nanoseconds since 1970.
        case counted(Int64)
        /// The same of a run that has ended: it replaces all others of the run, because the wall clock may have been set back.
        case closed(Int64)

        /// Whether it replaces the other one. A later version replaces an earlier one, never the other way round. Of two counts of a running
        /// process any other one counts as later: they are read in their order, and the wall clock may have been set back.
        func replaces(_ other: Version) -> Bool {
            if case (.counted, .counted) = (self, other) { return self != other }
            return self > other
        }

        init(of report: StallReport) {
            self = report.state == .ongoing ? .ongoing : report.isProvisional == true ? .provisional : .ended
        }

        init(of run: RunRecord) {
            let time = run.updatedAt.unixNanoseconds
            self = run.state == .running ? .counted(time) : .closed(time)
        }
    }
}

/// The known shipments that were not sent, oldest first.
struct ShipmentQueue {
    /// The size of encoded shipments kept until they are sent, in bytes; the files of others are read again.
    static let madeLimit = 32 << 20

    /// The ids of all known shipments. A slice, because its first elements are removed at no cost.
    private var order: ArraySlice<ULID> = []
    private var known: [ULID: Shipment] = [:]
    private var made: [ULID: [UInt8]] = [:]
    private var madeSize = 0

    var count: Int { known.count }

    /// Adds a shipment; a later version replaces a waiting one.
    ///
    /// - Parameter bytes: Its encoded form, if available.
    mutating func add(_ shipment: Shipment, _ bytes: [UInt8]?) {
        let waiting = known[shipment.id]
        if let waiting, !shipment.version.replaces(waiting.version) { return }
        if waiting == nil { order.append(shipment.id) }
        known[shipment.id] = shipment
        keep(bytes, of: shipment.id)
    }

    /// Replaces the kept bytes, if the new ones fit.
    private mutating func keep(_ bytes: [UInt8]?, of id: ULID) {
        madeSize -= made[id]?.count ?? 0
        made[id] = bytes.flatMap { madeSize + $0.count <= Self.madeLimit ? $0 : nil }
        madeSize += made[id]?.count ?? 0
    }

    /// The first shipments. They stay until they are removed.
    func first(_ limit: Int) -> [Shipment] { Array(order.lazy.compactMap { known[$0] }.prefix(limit)) }

    /// Its encoded form, if that was kept.
    func bytes(of shipment: Shipment) -> [UInt8]? { known[shipment.id] == shipment ? made[shipment.id] : nil }

    /// Removes shipments that were sent, or never will be. A later version that was added in the meantime is kept.
    mutating func remove(_ shipments: [Shipment]) {
        var gone: Set<ULID> = []
        for shipment in shipments where known[shipment.id] == shipment {
            known[shipment.id] = nil
            keep(nil, of: shipment.id)
            gone.insert(shipment.id)
        }
        // An id that is added again is appended at the end, and must not also be at its former position. What was sent is among
        // the first: after an outage a million others may wait.
        var passed: [ULID] = []
        while !gone.isEmpty, let id = order.popFirst() {
            if gone.remove(id) == nil { passed.append(id) }
        }
        if !passed.isEmpty { order = passed + order }
    }

    /// Moves those that are still waiting to the end.
    mutating func moveToEnd(_ shipments: [Shipment]) {
        let moved = Set(shipments.map(\.id))
        guard !moved.isEmpty else { return }
        order = order.filter { !moved.contains($0) } + order.filter(moved.contains)
    }
}
