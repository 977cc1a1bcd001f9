import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallShipping

@Suite("Signs of life", .timeLimit(.minutes(5)))
struct SignOfLifeTests {
    private let directory = "/dev/shm/signs-\(UUID())"

    /// Writes the record of a running monitor.
    ///
    /// - Returns: Its live record, which this process holds as the monitor's process would.
    private func start(_ run: ULID, _ process: ProcessIdentity = .current()) throws -> LiveRecordFile {
        let start = Timestamp.now()
        var record = RunRecord(
            id: run,
            startedAt: start,
            updatedAt: start,
            host: .current(),
            process: process,
            monitorVersion: "0.1.0",
            watched: [.init(label: "main")]
        )
        record.watched[0].watching = 1
        // Since the start of the kernel: the wall clock alone says how old the record is.
        record.updatedMonotonicNs = 1
        try ReportDirectory(path: directory).write(record)
        return try LiveRecordFile(
            in: directory,
            run: run,
            writer: LiveRecord.Writer(
                host: .current(),
                service: nil,
                process: process,
                startedAt: start,
                monitorVersion: "0.1.0",
                memory: nil
            ),
            status: LiveRecord.Status(updatedAt: start)
        )
    }

    @Test("A process that lives is heard of although its monitor writes nothing; one that died is not")
    func resting() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let (lasting, dying) = (ULID.make(), ULID.make())
        let live = try start(lasting)
        let receiver = try Listening(dying, start(dying))
        var options = ShippingOptions(directories: [directory], endpoint: "", checkpoint: directory + "/sent")
        (options.isCollector, options.linger, options.signOfLife) = (true, .zero, .milliseconds(2))
        let shipper = try Shipper(options, receiver, cancellation: receiver.cancellation) { _ in }
        _ = try shipper.run()
        let signs = receiver.records.filter { $0.id == lasting }
        #expect(signs.count >= 9)
        for (before, after) in zip(signs, signs.dropFirst()) {
            #expect(after.updatedAt > before.updatedAt && after.watched[0].watchedNs > before.watched[0].watchedNs)
        }
        #expect(receiver.records.count { $0.id == dying } == receiver.signsBeforeDeath)
        #expect(receiver.records.allSatisfy { $0.state == .running })
        _ = live
    }

    @Test("While a process is stopped it watches nothing, so that nothing is heard of it")
    func stopped() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let process = Process()
        (process.executableURL, process.arguments) = (URL(filePath: "/bin/sleep"), ["600"])
        try process.run()
        defer { process.killIfRunning() }
        let (id, pid) = (ULID.make(), process.processIdentifier)
        let live = try start(id, .of(pid))
        func read() throws -> RunRecord { try ReportReader(path: directory).run(id) }
        let before = try read()
        #expect(before.watched[0].watchedNs > 0)
        kill(pid, SIGSTOP)
        waitUntil { statusField("State", of: pid).hasPrefix("T") }
        let stopped = try read()
        #expect(stopped.state == .running && stopped.watched[0].watchedNs == 0)
        #expect(try read().updatedAt == stopped.updatedAt)
        kill(pid, SIGCONT)
        waitUntil { !statusField("State", of: pid).hasPrefix("T") }
        #expect(try read().watched[0].watchedNs > before.watched[0].watchedNs)
        _ = live
    }
}

/// Accepts every request. After some signs of life of one process it lets that process die; after some more of the other it ends the shipper.
private final class Listening: Receiver {
    let cancellation: Cancellation
    private(set) var records: [RunRecord] = []
    private(set) var signsBeforeDeath = 0
    private let dying: ULID
    private var live: LiveRecordFile?

    init(_ dying: ULID, _ live: consuming LiveRecordFile) throws {
        cancellation = try Cancellation()
        self.dying = dying
        self.live = consume live
    }

    func post(_ body: [UInt8], to path: String, within limit: Duration, while isAwaited: () -> Bool) -> Answer {
        records += body.split(separator: UInt8(ascii: "\n")).compactMap { try? RunRecord(json: Array($0)) }
        let signs = records.count { $0.id == dying }
        if signs >= 3, live != nil {
            live = nil
            signsBeforeDeath = signs
        }
        if live == nil, records.count - signs >= signs + 6 { cancellation.cancel() }
        return .accepted(rejected: 0, message: "")
    }
}
