import Foundation
import StallExport
package import StallReading
import StallReports

/// Follows report directories and sends their contents to a receiver: each version of a report at least once.
///
/// The report directories are the spool: reports that cannot be sent wait there, as long as the directories keep them. For one
/// thread, which owns it.
package final class Shipper {
    private let options: ShippingOptions
    private let tell: (ShippingNote) -> Void
    private var follower: TreeFollower
    private var delivery: Delivery
    private var stalls: Outbox
    private var runs: Outbox

    /// - Parameters:
    ///   - cancellation: Ends the run after a last attempt.
    ///   - tell: Called with events, on the thread that runs it.
    /// - Throws: ``ShippingError`` or `ReportError` if it cannot start.
    package init(
        _ options: ShippingOptions,
        cancellation: Cancellation,
        tell: @escaping (ShippingNote) -> Void
    ) throws {
        self.options = options
        self.tell = tell
        try Self.look(for: options.directories, isNeeded: options.endsWhenSent, tell)
        let receiver = try HTTPReceiver(options)
        delivery = Delivery(receiver, try Checkpoint(path: options.checkpoint), options, tell)
        follower = try TreeFollower(options.directories, cancellation: cancellation)
        stalls = Outbox(.logs, linger: options.linger)
        // Counts are cumulative and only the latest version is sent, so they may wait.
        runs = Outbox(.metrics, linger: options.linger * 20)
    }

    /// Checks a directory. It may be created later, unless the run ends when everything was sent.
    private static func look(
        for directories: [String],
        isNeeded: Bool,
        _ tell: (ShippingNote) -> Void
    ) throws(ReportError) {
        for directory in directories {
            do throws(ReportError) {
                _ = try ReportReader(path: directory).names()
            } catch let error where error.code == .missingDirectory && !isNeeded {
                tell(.waiting(directory: directory))
            }
        }
    }

    /// Sends until it is cancelled or, if so configured, until everything was sent.
    package func run() throws -> ShippingTotals {
        do throws(ReportError) {
            while try goOn() {}
        } catch let error where error.code == .cancelled {
            sendTheRest()
        }
        delivery.totals.unsent = stalls.queue.count + runs.queue.count
        return delivery.totals
    }

    /// Processes one event, and sends what is due.
    ///
    /// - Returns: Whether there is more to do.
    private func goOn() throws(ReportError) -> Bool {
        // If no more events are expected, it does not wait for one.
        let waits = !options.endsWhenSent
        let due = [stalls.due(batch: options.batch), runs.due(batch: options.batch)].compactMap(\.self).min()
        let pause = waits ? due.map { Self.time(until: $0) } ?? .seconds(60) : .zero
        if let event = try follower.next(timeout: pause) {
            take(event)
            send(all: false)
            return true
        }
        send(all: !waits)
        if waits { return true }
        return try waitsForNextTry()
    }

    /// Sends what the receiver accepts, within the time that a user waits for the end.
    private func sendTheRest() {
        let end = ContinuousClock.now + .seconds(5)
        var before = Int.max
        while stalls.queue.count + runs.queue.count < before, ContinuousClock.now < end {
            before = stalls.queue.count + runs.queue.count
            send(all: true)
        }
    }

    /// If everything must be sent and the receiver did not accept it: waits for the next attempt. The run ends when each kind is sent, or has
    /// failed three times in a row: a receiver can accept one kind and not the other.
    private func waitsForNextTry() throws(ReportError) -> Bool {
        let due = [stalls, runs].filter { $0.failures < 3 }.compactMap { $0.due(batch: 1) }.min()
        guard let due else { return false }
        if let event = try follower.next(timeout: Self.time(until: due)) { take(event) }
        return true
    }

    private static func time(until instant: ContinuousClock.Instant) -> Duration {
        max(.zero, ContinuousClock.now.duration(to: instant))
    }

    private func send(all: Bool) {
        let (now, batch) = (ContinuousClock.now, all ? 1 : options.batch)
        if let due = stalls.due(batch: batch), due <= now { delivery.send(&stalls) }
        if let due = runs.due(batch: batch), due <= now { delivery.send(&runs) }
    }

    private func take(_ event: TreeFollower.Event) {
        switch event {
        case .failure(let error), .event(.failure(let error), _):
            delivery.totals.unreadable += 1
            tell(.unreadable((error.path.map { $0 + ": " } ?? "") + error.description))
        case .event(.report(let report), let directory), .event(.grown(let report), let directory):
            let version = Shipment.Version(of: report)
            guard version != .ongoing || .nanoseconds(report.durationNs) >= options.ongoingAfter else { return }
            let shipment = Shipment(id: report.id, version: version, directory: directory)
            delivery.take(shipment, for: &stalls) { () throws(ReportError) in try options.wire.element(report) }
        case .event(.run(let run), let directory):
            let version = Shipment.Version.counted(run.updatedAt.nanoseconds(since: Timestamp(seconds: 0)))
            let shipment = Shipment(id: run.id, version: version, directory: directory)
            delivery.take(shipment, for: &runs) { () throws(ReportError) in try options.wire.element(run) }
        case .event(.directoryGone, let directory): tell(.waiting(directory: directory))
        case .event(.directoryAppeared, _): break
        }
    }
}

/// One item to send: a version of a stall's report, or of a run's record.
struct Shipment: Hashable {
    let id: ULID
    let version: Version
    /// The directory of its file.
    let directory: String

    /// The version that was sent. A later version replaces an earlier one, never the other way round.
    enum Version: Hashable, Comparable {
        /// While the stall lasts.
        case ongoing
        /// The stall has ended, and its fault's identity was made without names: a command may add them.
        case provisional
        case ended
        /// A run's counts, by the time at which they were current, in nanoseconds since 1970.
        case counted(Int64)

        init(of report: StallReport) {
            self = report.state == .ongoing ? .ongoing : report.isProvisional == true ? .provisional : .ended
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
        if let waiting, waiting.version >= shipment.version { return }
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
