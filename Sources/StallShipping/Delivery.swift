import StallExport
import StallReading
import StallReports

/// Sends batches, and remembers what was acknowledged.
struct Delivery: ~Copyable {
    var totals = ShippingTotals()

    private let receiver: any Receiver
    private let tell: (ShippingNote) -> Void
    private let batch: Int
    private let wire: Wire
    private let timeout: Duration
    private let tries: Int?
    private let lastTry: LastTry
    private var checkpoint: Checkpoint
    private var hasReportedCheckpoint = false
    /// For the batch in progress: whether any record was accepted, and the records that were refused individually before that.
    private var hasAccepted = false
    private var suspects: [(shipment: Shipment, reason: String)] = []
    /// The reports of the batch in progress that cannot be read, if that may pass, and why the last one cannot.
    private var obstacles: [Shipment] = []
    private var obstacle: ReportError?

    /// The largest size of one request before compression, in bytes: receivers refuse larger ones.
    private static let sizeLimit = 4 << 20
    /// If this many records are refused and none is accepted, the records are not the reason.
    private static let suspectLimit = 3

    init(
        _ receiver: any Receiver,
        _ checkpoint: consuming Checkpoint,
        _ options: ShippingOptions,
        _ cancellation: Cancellation,
        _ tell: @escaping (ShippingNote) -> Void
    ) {
        (self.receiver, self.tell, batch) = (receiver, tell, options.batch)
        (wire, timeout, tries) = (options.wire, options.timeout, options.tries)
        lastTry = LastTry(cancellation, options.lastTry)
        self.checkpoint = checkpoint
    }

    /// Queues a shipment that was not acknowledged yet.
    mutating func take(_ shipment: Shipment, for outbox: inout Outbox, make: () throws(ReportError) -> [UInt8]) {
        guard !outbox.isOff, !checkpoint.has(shipment) else { return }
        outbox.add(shipment, try? make())
    }

    private var timeLeft: Duration { min(timeout, lastTry.timeLeft ?? timeout) }

    /// Sends one batch. Shipments that the receiver does not accept now stay in the queue.
    mutating func send(_ outbox: inout Outbox) {
        guard timeLeft > .zero else { return }
        (hasAccepted, suspects, obstacles, obstacle) = (false, [], [], nil)
        var outcome = send(outbox.queue.first(batch), &outbox)
        if case .done = outcome, let suspect = suspects.first {
            outcome = .later("it refuses everything: \(suspect.reason)", retryAfter: nil)
        }
        // A batch of nothing else would keep all others from being sent.
        outbox.queue.moveToEnd(obstacles)
        switch outcome {
        case .done:
            if let obstacle {
                outbox.pause()
                tell(.unreadable(obstacle.line))
            } else if let down = outbox.succeeded() {
                tell(.available(kind: outbox.kind, after: down))
            }
        case .off(let status):
            tell(.unknownPath(kind: outbox.kind, status: status))
            outbox.switchOff()
        case .later(let reason, let retryAfter):
            // If these records are the reason, not the receiver, the next attempt sends others that it accepts.
            outbox.queue.moveToEnd(suspects.map(\.shipment))
            let next = outbox.failed(retryAfter: retryAfter)
            let isLast = lastTry.timeLeft != nil || tries.map { outbox.failures >= $0 } ?? false
            tell(.unavailable(kind: outbox.kind, reason: reason, next: isLast ? nil : next))
        }
    }

    private enum Outcome {
        case done
        /// The receiver does not accept this kind of shipment.
        case off(String)
        case later(String, retryAfter: Duration?)
    }

    private mutating func send(_ shipments: [Shipment], _ outbox: inout Outbox) -> Outcome {
        var rest = shipments[...]
        while !rest.isEmpty {
            let (elements, sent) = elements(of: &rest, &outbox)
            guard !sent.isEmpty else { continue }
            totals.requests += 1
            let body = wire.request(elements, outbox.signal)
            let limit = max(.zero, timeLeft)
            switch receiver.post(body, to: wire.path(outbox.signal), within: limit, while: { timeLeft > .zero }) {
            case .accepted(let rejected, let message): accept(sent, rejected, message, &outbox)
            case .unavailable(let reason, let retryAfter): return .later(reason, retryAfter: retryAfter)
            case .unknownPath(let status):
                // A collector has one path for both kinds: none there means no collector, or one that is out of reach.
                guard outbox.signal == .logs || wire == .collector else { return .off(status) }
                return .later("there is no /\(wire.path(outbox.signal)) at that address (\(status))", retryAfter: nil)
            case .refused(let reason):
                let outcome = sent.count > 1 ? sendHalves(of: sent, &outbox) : suspect(sent[0], reason, &outbox)
                guard case .done = outcome else { return outcome }
            }
        }
        return .done
    }

    /// Sends the halves separately, to find the records that the receiver rejects.
    private mutating func sendHalves(of shipments: [Shipment], _ outbox: inout Outbox) -> Outcome {
        let middle = shipments.count / 2
        let outcome = send(Array(shipments[..<middle]), &outbox)
        guard case .done = outcome else { return outcome }
        return send(Array(shipments[middle...]), &outbox)
    }

    private mutating func suspect(_ shipment: Shipment, _ reason: String, _ outbox: inout Outbox) -> Outcome {
        suspects.append((shipment, reason))
        if hasAccepted { giveUpSuspects(&outbox) }
        guard suspects.count >= Self.suspectLimit else { return .done }
        return .later("it refuses everything: \(reason)", retryAfter: nil)
    }

    private mutating func accept(_ sent: [Shipment], _ rejected: Int, _ message: String, _ outbox: inout Outbox) {
        hasAccepted = true
        // For metrics a receiver counts data points, of which a run has many: the run counts as accepted.
        let leftOut = outbox.signal == .logs || wire == .collector ? min(rejected, sent.count) : 0
        switch outbox.signal {
        case .logs: totals.stalls += sent.count - leftOut
        case .metrics: totals.runs += sent.count - leftOut
        }
        totals.refused += leftOut
        if rejected > 0 { tell(.rejected(kind: outbox.kind, count: rejected, reason: message)) }
        remember(sent, &outbox)
        giveUpSuspects(&outbox)
    }

    /// Gives up the suspects: the receiver accepts others, so these records are the ones that it rejects.
    private mutating func giveUpSuspects(_ outbox: inout Outbox) {
        for (shipment, reason) in suspects {
            tell(.refused(kind: outbox.signal == .logs ? "stall" : "run", id: "\(shipment.id)", reason: reason))
        }
        totals.refused += suspects.count
        remember(suspects.map(\.shipment), &outbox)
        suspects = []
    }

    private mutating func remember(_ shipments: [Shipment], _ outbox: inout Outbox) {
        outbox.queue.remove(shipments)
        guard !shipments.isEmpty else { return }
        do {
            try checkpoint.note(shipments)
            hasReportedCheckpoint = false
        } catch {
            if !hasReportedCheckpoint { tell(.checkpoint("\(error)")) }
            hasReportedCheckpoint = true
        }
    }

    /// Removes as many shipments from the front as fit into one request. Those that can no longer be sent are skipped and
    /// counted.
    private mutating func elements(
        of rest: inout ArraySlice<Shipment>,
        _ outbox: inout Outbox
    ) -> (elements: [[UInt8]], sent: [Shipment]) {
        var (elements, sent, size): ([[UInt8]], [Shipment], Int) = ([], [], 0)
        var unread: [(shipment: Shipment, error: ReportError)] = []
        while let shipment = rest.first {
            do throws(ReportError) {
                let element = if let bytes = outbox.queue.bytes(of: shipment) { bytes } else { try read(shipment) }
                if !sent.isEmpty, size + element.count > Self.sizeLimit { break }
                elements.append(element)
                sent.append(shipment)
                size += element.count
            } catch {
                unread.append((shipment, error))
            }
            rest = rest.dropFirst()
        }
        skip(unread, &outbox)
        return (elements, sent)
    }

    /// Removes shipments whose file is gone or will never be readable from the queue.
    private mutating func skip(_ unread: [(shipment: Shipment, error: ReportError)], _ outbox: inout Outbox) {
        var (gone, lost): ([Shipment], Int) = ([], 0)
        for (shipment, error) in unread {
            switch error.code {
            case .io:
                // No descriptor is left, or the disk has failed. It stays in the queue.
                obstacles.append(shipment)
                obstacle = error
            case .missingFile, .missingDirectory:
                gone.append(shipment)
                lost += outbox.signal == .logs ? 1 : 0
            default:
                gone.append(shipment)
                totals.unreadable += 1
                tell(.unreadable(error.line))
            }
        }
        if !gone.isEmpty { outbox.queue.remove(gone) }
        totals.lost += lost
        if lost > 0 { tell(.lost(lost)) }
    }

    private func read(_ shipment: Shipment) throws(ReportError) -> [UInt8] {
        let reader = ReportReader(path: shipment.directory)
        switch shipment.version {
        case .ongoing, .provisional, .ended: return try wire.element(reader.report(shipment.id))
        case .counted, .closed: return try wire.element(reader.run(shipment.id))
        }
    }
}

/// The end of a cancelled run: all requests together, with the one that is under way, end within a time. For one thread.
private final class LastTry {
    private let cancellation: Cancellation
    private let length: Duration
    private var end: ContinuousClock.Instant?

    init(_ cancellation: Cancellation, _ length: Duration) { (self.cancellation, self.length) = (cancellation, length) }

    /// Nil before the cancellation. The time begins when this is asked for after it.
    var timeLeft: Duration? {
        if end == nil, cancellation.isCancelled { end = .now + length }
        return end.map { ContinuousClock.now.duration(to: $0) }
    }
}
