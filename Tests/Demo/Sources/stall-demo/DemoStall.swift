import Foundation
import NIOCore
import RunLoopKit
import StallReports

/// The stalls that can be injected into the demo's server.
enum DemoStall: String, CaseIterable, Codable, Sendable {
    case json, lock, pipe, sleep, fsync, loop
    case eventLoop = "event-loop"
    case taskPool = "task-pool"

    /// The function that must be reported as the culprit.
    var culprit: String {
        switch self {
        case .json: "decodeHugeDocument"
        case .lock: "waitForLock"
        case .pipe: "readFromPipe"
        case .sleep: "sleepOnMainActor"
        case .fsync: "syncLargeFile"
        case .loop: "spinInClosure"
        case .eventLoop: "hashPasswordOnEventLoop"
        case .taskPool: "blockWorker"
        }
    }

    /// A description of the stall for people.
    var title: String {
        switch self {
        case .json: "decode a huge JSON document"
        case .lock: "wait for a lock held by another thread"
        case .pipe: "read from a silent pipe"
        case .sleep: "sleep"
        case .fsync: "fsync a large file"
        case .loop: "spin in a generic closure, three awaits deep"
        case .eventLoop: "hash a password on SwiftNIO's event loop"
        case .taskPool: "block every worker of the task pool"
        }
    }

    /// The expected type of the watched loop in the report.
    var watchedType: WatchedType {
        switch self {
        case .eventLoop: .eventLoop
        case .taskPool: .taskPool
        default: .runLoop
        }
    }

    /// Stalls the main actor, the event loop or the task pool for about this number of milliseconds, 1 to 60,000. Returns the
    /// time of the stall, measured by the stalled code.
    func perform(milliseconds: Int, on eventLoop: any EventLoop) async throws -> StallReceipt {
        switch self {
        case .json:
            let document = HugeDocument(lasting: milliseconds)
            return await onMainActor {
                decodeHugeDocument(document, until: .now.advanced(by: .milliseconds(milliseconds)))
            }
        case .lock:
            let holder = LockHolder(holding: milliseconds)
            return await onMainActor { waitForLock(holder) }
        case .pipe:
            let pipe = try SlowPipe(writingAfter: milliseconds)
            return await onMainActor { readFromPipe(pipe) }
        case .sleep:
            return await onMainActor { sleepOnMainActor(milliseconds) }
        case .fsync:
            let file = try LargeFile()
            return await onMainActor { syncLargeFile(file, until: .now.advanced(by: .milliseconds(milliseconds))) }
        case .loop:
            return await spin(milliseconds)
        case .eventLoop:
            return try await eventLoop.submit {
                let start = Timestamp.now()
                let result = hashPasswordOnEventLoop(until: .now.advanced(by: .milliseconds(milliseconds)))
                return StallReceipt(self, from: start, result: result)
            }.get()
        case .taskPool:
            return await starvePool(milliseconds)
        }
    }

    /// Starts as many tasks as the pool has workers. No worker is free
    /// between the begin of the last task and the end of the first one.
    private func starvePool(_ milliseconds: Int) async -> StallReceipt {
        let crew = BlockedCrew(count: ProcessInfo.processInfo.activeProcessorCount, for: milliseconds)
        await withDiscardingTaskGroup { group in
            for _ in 0..<crew.count { group.addTask { blockWorker(crew) } }
        }
        return StallReceipt(self, from: crew.startedAt, to: crew.endedAt, result: UInt64(crew.count))
    }

    private func onMainActor(_ stall: @MainActor @Sendable () -> Int) async -> StallReceipt {
        await MainActor.run {
            let start = Timestamp.now()
            let result = stall()
            return StallReceipt(self, from: start, result: UInt64(bitPattern: Int64(result)))
        }
    }

    @MainActor
    private func spin(_ milliseconds: Int) async -> StallReceipt {
        let start = Timestamp.now()
        let result = await spinInClosure(until: .now.advanced(by: .milliseconds(milliseconds)))
        return StallReceipt(self, from: start, result: result)
    }
}

/// The server's answer about a stall that it executed.
struct StallReceipt: Codable, Hashable, Sendable {
    var stall: DemoStall
    var startedAt: Timestamp
    var endedAt: Timestamp
    /// The result of the stalled function, so that the computation cannot be removed.
    var result: UInt64

    private enum CodingKeys: String, CodingKey {
        case stall
        case startedAt = "started_at"
        case endedAt = "ended_at"
        case result
    }

    init(_ stall: DemoStall, from start: Timestamp, to end: Timestamp = .now(), result: UInt64) {
        (self.stall, startedAt, endedAt, self.result) = (stall, start, end, result)
    }
}
