import Foundation
import StallExport
package import StallReading
package import StallReports

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
    /// The runs whose process lived when their record was last read, and their directories.
    private var living: [ULID: String] = [:]
    private var nextSign = ContinuousClock.now
    /// Files and directories that could not be read for a reason that may pass: the follower reads them again.
    private var postponed: Set<String> = []

    /// - Parameters:
    ///   - cancellation: Ends the run after a last attempt.
    ///   - tell: Called with events, on the thread that runs it.
    /// - Throws: ``ShippingError`` or `ReportError` if it cannot start.
    package convenience init(
        _ options: ShippingOptions,
        cancellation: Cancellation,
        tell: @escaping (ShippingNote) -> Void
    ) throws {
        try self.init(options, HTTPReceiver(options), cancellation: cancellation, tell: tell)
    }

    init(
        _ options: ShippingOptions,
        _ receiver: any Receiver,
        cancellation: Cancellation,
        tell: @escaping (ShippingNote) -> Void
    ) throws {
        (self.options, self.tell) = (options, tell)
        try Self.look(for: options.directories, isNeeded: options.endsWhenSent, tell)
        delivery = Delivery(receiver, try Checkpoint(path: options.checkpoint), options, cancellation, tell)
        follower = try TreeFollower(options.directories, cancellation: cancellation)
        stalls = Outbox(.logs, linger: options.linger)
        // Counts are cumulative and only the latest version is sent, so they may wait.
        runs = Outbox(.metrics, linger: options.linger * 20)
        scheduleSigns()
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
    package func run() throws(ReportError) -> ShippingTotals {
        do throws(ReportError) {
            while try goOn() {}
        } catch let error where error.code == .cancelled {
            sendTheRest()
        }
        delivery.totals.unsent = stalls.queue.count + runs.queue.count
        delivery.totals.unreadable += unread
        return delivery.totals
    }

    /// How many of the postponed files were never read. Those that were removed meanwhile, to make room, do not count.
    private var unread: Int { postponed.count { FileManager.default.fileExists(atPath: $0) } }

    /// Processes one event, and sends what is due.
    ///
    /// - Returns: Whether there is more to do.
    private func goOn() throws(ReportError) -> Bool {
        // If no more events are expected, it does not wait for one.
        let waits = !options.endsWhenSent
        if waits, nextSign <= .now { queueSigns() }
        let due = [stalls, runs].compactMap { $0.due(batch: options.batch) }.reduce(nextSign, min)
        let pause = waits ? Self.time(until: due) : .zero
        if let event = try follower.next(timeout: pause) {
            take(event)
            send(all: false)
            return true
        }
        send(all: !waits)
        if waits { return true }
        return try waitsForNextTry()
    }

    /// Sends what the receiver accepts, within the time that a user waits for the end. The receiver may be back, although the next try would be
    /// later.
    private func sendTheRest() {
        stalls.hasten()
        runs.hasten()
        var before = Int.max
        while stalls.queue.count + runs.queue.count < before {
            before = stalls.queue.count + runs.queue.count
            send(all: true)
        }
    }

    /// If everything must be sent and the receiver did not accept it: waits for the next attempt. The run ends when each kind is sent, or has
    /// failed as often in a row as it may: a receiver can accept one kind and not the other.
    private func waitsForNextTry() throws(ReportError) -> Bool {
        let due = [stalls, runs].filter { $0.failures < options.tries ?? .max }.compactMap { $0.due(batch: 1) }.min()
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
            if error.code == .io, let path = error.path {
                postponed.insert(path)
            } else {
                delivery.totals.unreadable += 1
                if let path = error.path { postponed.remove(path) }
            }
            tell(.unreadable(error.line))
        case .event(.report(let report), let directory), .event(.grown(let report), let directory):
            hasRead(ReportFileName(.stall, report.id), in: directory)
            let version = Shipment.Version(of: report)
            guard version != .ongoing || .nanoseconds(report.durationNs) >= options.ongoingAfter else { return }
            let shipment = Shipment(id: report.id, version: version, directory: directory)
            delivery.take(shipment, for: &stalls) { () throws(ReportError) in try options.wire.element(report) }
        case .event(.run(let run), let directory):
            hasRead(ReportFileName(.run, run.id), in: directory)
            living[run.id] = run.state == .running ? directory : nil
            let shipment = Shipment(id: run.id, version: .init(of: run), directory: directory)
            delivery.take(shipment, for: &runs) { () throws(ReportError) in try options.wire.element(run) }
        case .event(.directoryGone, let directory): tell(.waiting(directory: directory))
        case .event(.directoryAppeared, let directory): postponed.remove(directory)
        }
    }

    /// Queues the records of living processes, with the time that they watched meanwhile. A monitor writes nothing while its loops rest: without
    /// this, the receiver could not tell it from one that died. One that is stopped watches nothing, and is to be missed.
    private func queueSigns() {
        scheduleSigns()
        for (id, directory) in living where !Self.isStopped(id, in: directory) {
            do throws(ReportError) {
                let run = try ReportReader(path: directory).run(id)
                if run.state == .running { take(.event(.run(run), directory: directory)) } else { living[id] = nil }
            } catch {
                // What may pass is tried again next time.
                if error.code != .io { living[id] = nil }
            }
        }
    }

    /// Whether the process of a run is stopped, by a signal or a debugger. False if that cannot be seen from here.
    private static func isStopped(_ run: ULID, in path: String) -> Bool {
        guard let directory = try? OpenDirectory(path: path) else { return false }
        let documents = StoredDocuments(path: path)
        let process = documents.liveProcesses(of: [run], in: directory).processes.first
        return ["T", "t"].contains(process?.kernelState(by: documents.liveness))
    }

    /// At random, so that hosts that started together do not send together.
    private func scheduleSigns() { nextSign = .now + options.signOfLife * Double.random(in: 0.5...1) }

    /// A file that was read, and a directory in which that was possible, are not postponed any more.
    private func hasRead(_ name: ReportFileName, in directory: String) {
        guard !postponed.isEmpty else { return }
        postponed.remove("\(directory)/\(name)")
        postponed.remove(directory)
    }
}

extension ReportError {
    /// One line for display.
    var line: String { (path.map { $0 + ": " } ?? "") + description }
}
