import Foundation
import StallReading
import StallReports
import Testing

@testable import StallShipping

@Suite("The last try to send", .timeLimit(.minutes(5)))
struct LastTryTests {
    private let directory = "/dev/shm/last-try-\(UUID())"

    /// Sends one run record to the receiver, which ends the run at its first request.
    private func ship(
        to receiver: Down,
        lastTry: Duration = .seconds(5)
    ) throws -> (totals: ShippingTotals, notes: [ShippingNote]) {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let time = Timestamp(seconds: 1_790_000_000)
        let run = RunRecord(
            id: .make(),
            startedAt: time,
            updatedAt: time,
            host: HostIdentity(name: "web1"),
            process: ProcessIdentity(pid: 7),
            monitorVersion: "0.1.0"
        )
        try ReportDirectory(path: directory).write(run)
        var options = ShippingOptions(directories: [directory], endpoint: "", checkpoint: directory + "/sent")
        (options.isCollector, options.linger, options.lastTry) = (true, .zero, lastTry)
        var notes: [ShippingNote] = []
        let shipper = try Shipper(options, receiver, cancellation: receiver.cancellation) { notes.append($0) }
        return (try shipper.run(), notes)
    }

    @Test("A run that ends while it waits for the next try makes it at once, bounded; what is left is counted")
    func duringBackoff() throws {
        let receiver = try Down(retryAfter: nil)
        let (totals, notes) = try ship(to: receiver)
        #expect(receiver.limits.count == 2 && totals.requests == 2 && totals.unsent == 1)
        #expect(receiver.limits.first == .seconds(30))
        #expect(receiver.limits.last.map { $0 <= .seconds(5) } == true)
        #expect(notes == Array(repeating: .unavailable(kind: "run records", reason: "it is down", next: nil), count: 2))
        #expect("\(totals)".hasSuffix("; 1 not sent, kept for the next run"))
    }

    @Test("A request that is under way when the run ends belongs to the last try")
    func underWay() throws {
        let receiver = try Down(retryAfter: nil, isSilent: true)
        let (totals, notes) = try ship(to: receiver, lastTry: .milliseconds(100))
        #expect(receiver.limits == [.seconds(30)] && totals.unsent == 1 && notes.count == 1)
    }

    @Test("If the receiver has asked for a delay, the run ends without another try")
    func retryAfter() throws {
        let receiver = try Down(retryAfter: .seconds(3600))
        let (totals, notes) = try ship(to: receiver)
        #expect(receiver.limits.count == 1 && totals.unsent == 1 && notes.count == 1)
    }
}

/// Takes nothing, and ends the run at the first request.
private final class Down: Receiver {
    let cancellation: Cancellation
    private(set) var limits: [Duration] = []
    private let retryAfter: Duration?
    private let isSilent: Bool

    /// - Parameter isSilent: It answers only when the answer is no longer awaited.
    init(retryAfter: Duration?, isSilent: Bool = false) throws {
        cancellation = try Cancellation()
        (self.retryAfter, self.isSilent) = (retryAfter, isSilent)
    }

    func post(_ body: [UInt8], to path: String, within limit: Duration, while isAwaited: () -> Bool) -> Answer {
        limits.append(limit)
        cancellation.cancel()
        while isSilent, isAwaited() { usleep(1000) }
        return .unavailable("it is down", retryAfter: retryAfter)
    }
}
