import Foundation
import StallReading
import StallReports
import Synchronization

/// Follows the demo's report directory on a separate thread, until it is deallocated.
final class ReportFeed: Sendable {
    private let directory: String
    private let cancellation: Cancellation
    /// Reports that existed before the demo.
    private let old: Set<ULID>
    private let ended = Mutex<Set<ULID>>([])

    /// - Parameter show: Called for each report when it appears, and again when it has ended.
    init(directory: String, show: @escaping @Sendable (StallReport, _ isFirst: Bool) -> Void) throws {
        self.directory = directory
        old = Set((try? ReportReader(path: directory).contents().reports.map(\.id)) ?? [])
        let start = try FollowerStart(directory)
        cancellation = start.cancellation
        Thread { [self] in
            var shown: Set<ULID> = []
            start.follow { [old] report in
                guard !old.contains(report.id) else { return }
                let isFirst = shown.insert(report.id).inserted
                if isFirst || report.state != .ongoing { show(report, isFirst) }
                guard report.state != .ongoing else { return }
                ended.withLock { _ = $0.insert(report.id) }
            }
        }.start()
    }

    /// Waits until `count` stalls have ended, 10 s at most.
    func settle(count: Int) async {
        let deadline = ContinuousClock.now + .seconds(10)
        while ended.withLock({ $0.count < count }), ContinuousClock.now < deadline {
            guard (try? await Task.sleep(for: .milliseconds(20))) != nil else { return }
        }
    }

    /// The reports written since the start.
    func reports() throws -> [StallReport] {
        try ReportReader(path: directory).contents().reports.filter { !old.contains($0.id) }
    }

    func stop() {
        cancellation.cancel()
    }
}

/// Passes a follower, which may be used on one thread only, to that thread.
private final class FollowerStart: Sendable {
    let cancellation: Cancellation
    private let follower: Mutex<ReportFollower?>

    init(_ directory: String) throws(ReportError) {
        let follower = try ReportFollower(path: directory)
        cancellation = follower.cancellation
        self.follower = Mutex(follower)
    }

    /// Calls `body` with each report until it is cancelled.
    func follow(_ body: (StallReport) -> Void) {
        guard var follower = follower.withLock({ $0.take() }) else { return }
        while let event = try? follower.next() {
            if case .report(let report) = event { body(report) }
        }
    }
}
