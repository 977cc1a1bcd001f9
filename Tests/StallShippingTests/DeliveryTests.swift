import Foundation
import StallExport
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallShipping

@Suite("The delivery of reports")
struct DeliveryTests {
    private let directory = "/dev/shm/delivery-\(UUID())"

    private func written() throws -> Shipment {
        let time = Timestamp(seconds: 1_790_000_000)
        let report = StallReport(
            id: .make(),
            kind: .blocked,
            state: .recovered,
            severity: .warning,
            startedAt: time,
            detectedAt: time,
            durationNs: 300_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: HostIdentity(name: "web1"),
            process: ProcessIdentity(pid: 7),
            watched: .init(type: .runLoop, label: "main"),
            thread: .init(id: 7),
            fingerprint: try #require(Fingerprint(rawValue: "v2:0123456789abcdef"))
        )
        _ = try ReportDirectory(path: directory).write(report)
        return Shipment(id: report.id, version: .ended, directory: directory)
    }

    @Test(
        "A report that cannot be read for a moment is sent later; the others are sent at once",
        .enabled(if: Lease.isPermitted, "the file system of /dev/shm has no leases")
    )
    func unreadable() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let shipments = try [written(), written()]
        let lease = try #require(Lease(on: "\(directory)/\(ReportFileName(.stall, shipments[0].id))"))
        let receiver = Counting()
        var notes: [ShippingNote] = []
        let options = ShippingOptions(directories: [directory], endpoint: "", checkpoint: directory + "/sent")
        let checkpoint = try Checkpoint(path: options.checkpoint)
        var delivery = Delivery(receiver, checkpoint, options, try Cancellation()) { notes.append($0) }
        var outbox = Outbox(.logs, linger: .zero)
        for shipment in shipments {
            // As if too much waited already to keep its encoded form.
            delivery.take(shipment, for: &outbox) { () throws(ReportError) in throw ReportError(.io) }
        }
        let began = ContinuousClock.now
        delivery.send(&outbox)
        #expect(receiver.requests == 1 && delivery.totals.stalls == 1)
        #expect(outbox.queue.first(9) == [shipments[0]] && outbox.failures == 1)
        let due = try #require(outbox.due(batch: 1))
        // The first pause is from half a second to a second; some of it may have passed by now.
        #expect(due >= began + .milliseconds(500))
        #expect(notes.count == 1 && "\(notes[0])".contains("\(shipments[0].id)"), "\(notes)")
        lease.end()
        delivery.send(&outbox)
        #expect(receiver.requests == 2 && delivery.totals.stalls == 2 && outbox.queue.count == 0)
        #expect(outbox.failures == 0 && notes.count == 1 && delivery.totals.isWhole)
    }

    @Test(
        "Reports that cannot be read for a moment do not keep the others from being sent, however many they are",
        .enabled(if: Lease.isPermitted, "the file system of /dev/shm has no leases")
    )
    func unreadableBatch() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let shipments = try [written(), written(), written()]
        let leases = try shipments.prefix(2).map { shipment in
            try #require(Lease(on: "\(directory)/\(ReportFileName(.stall, shipment.id))"))
        }
        let receiver = Counting()
        var options = ShippingOptions(directories: [directory], endpoint: "", checkpoint: directory + "/sent")
        options.batch = 2
        let checkpoint = try Checkpoint(path: options.checkpoint)
        var delivery = Delivery(receiver, checkpoint, options, try Cancellation()) { _ in }
        var outbox = Outbox(.logs, linger: .zero)
        for shipment in shipments {
            delivery.take(shipment, for: &outbox) { () throws(ReportError) in throw ReportError(.io) }
        }
        delivery.send(&outbox)
        #expect(receiver.requests == 0 && outbox.queue.count == 3)
        delivery.send(&outbox)
        #expect(receiver.requests == 1 && delivery.totals.stalls == 1)
        #expect(Set(outbox.queue.first(9)) == Set(shipments.prefix(2)))
        for lease in leases { lease.end() }
        delivery.send(&outbox)
        #expect(delivery.totals.stalls == 3 && outbox.queue.count == 0 && delivery.totals.isWhole)
    }

    @Test("The end of a run is sent also if the wall clock was set back before it, and replaces what was known")
    func clockSetBack() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let reports = directory + "/reports"
        try FileManager.default.createDirectory(atPath: reports, withIntermediateDirectories: true)
        let (start, receiver) = (Timestamp.now(), Counting())
        let running = RunRecord(
            startedAt: start,
            updatedAt: start.advanced(byNanoseconds: 2_000_000_000),
            host: .current(),
            process: .current(),
            monitorVersion: "0.1.0"
        )
        var stopped = running
        (stopped.state, stopped.updatedAt) = (.stopped, start.advanced(byNanoseconds: 1_000_000_000))
        for record in [running, stopped, stopped, running] {
            try ReportDirectory(path: reports).write(record)
            var options = ShippingOptions(directories: [reports], endpoint: "", checkpoint: directory + "/sent")
            (options.isCollector, options.endsWhenSent) = (true, true)
            let shipper = try Shipper(options, receiver, cancellation: Cancellation()) { _ in }
            let isWhole = try shipper.run().isWhole
            #expect(isWhole)
        }
        #expect(receiver.runs.map(\.state) == [.running, .stopped])
    }
}

/// Accepts every request.
private final class Counting: Receiver {
    private(set) var requests = 0
    private(set) var runs: [RunRecord] = []

    func post(_ body: [UInt8], to path: String, within limit: Duration, while isAwaited: () -> Bool) -> Answer {
        requests += 1
        runs += body.split(separator: UInt8(ascii: "\n")).compactMap { try? RunRecord(json: Array($0)) }
        return .accepted(rejected: 0, message: "")
    }
}
