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

    @Test("Nothing is heard of a process while it is stopped; before and after that, its watched time only grows")
    func stopped() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let process = Process()
        (process.executableURL, process.arguments) = (URL(filePath: "/bin/sleep"), ["600"])
        try process.run()
        defer { process.killIfRunning() }
        let (stopping, lasting) = (ULID.make(), ULID.make())
        let live = try start(stopping, .of(process.processIdentifier))
        let other = try start(lasting)
        let receiver = try Stopping(stopping, process.processIdentifier)
        var options = ShippingOptions(directories: [directory], endpoint: "", checkpoint: directory + "/sent")
        (options.isCollector, options.linger, options.signOfLife) = (true, .zero, .milliseconds(2))
        let shipper = try Shipper(options, receiver, cancellation: receiver.cancellation) { _ in }
        _ = try shipper.run()
        #expect(receiver.signs.count >= 6 && receiver.signsWhileStopped == 0)
        for (before, after) in zip(receiver.signs, receiver.signs.dropFirst()) {
            #expect(after.updatedAt > before.updatedAt && after.watched[0].watchedNs > before.watched[0].watchedNs)
        }
        _ = live
        _ = other
    }
}

/// Accepts every request. After three signs of life of a process it stops that process; after six of another one it lets it go on; after three
/// more it ends the shipper.
private final class Stopping: Receiver {
    let cancellation: Cancellation
    private(set) var signs: [RunRecord] = []
    private(set) var signsWhileStopped = 0
    private var signsOfOthers = 0
    private let run: ULID
    private let process: Int32

    init(_ run: ULID, _ process: Int32) throws {
        cancellation = try Cancellation()
        (self.run, self.process) = (run, process)
    }

    func post(_ body: [UInt8], to path: String, within limit: Duration, while isAwaited: () -> Bool) -> Answer {
        let records = body.split(separator: UInt8(ascii: "\n")).compactMap { try? RunRecord(json: Array($0)) }
        let found = records.filter { $0.id == run }
        let isStopped = statusField("State", of: process).hasPrefix("T")
        signs += found
        if isStopped {
            signsWhileStopped += found.count
            signsOfOthers += records.count - found.count
            if signsOfOthers >= 6 { go(on: true) }
        } else if signs.count >= 3, signsOfOthers == 0 {
            go(on: false)
        }
        if signs.count >= 6 { cancellation.cancel() }
        return .accepted(rejected: 0, message: "")
    }

    private func go(on goesOn: Bool) {
        kill(process, goesOn ? SIGCONT : SIGSTOP)
        waitUntil { statusField("State", of: process).hasPrefix("T") != goesOn }
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
