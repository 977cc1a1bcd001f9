import CLocks
import StackCapture
import TestSupport
import Testing

@testable import StallMonitor

@Suite("A lock that changes hands while it is looked at", .serialized, .captureSignal, .timeLimit(.minutes(10)))
struct LockContestTests {
    @Test(
        "An owner is only ever told that had the lock",
        arguments: [LOCK_NORMAL, LOCK_RW, LOCK_INHERITING, LOCK_ROBUST]
    )
    func contest(_ make: lock_make) throws {
        let capturer = try StackCapturer()
        defer { capturer.invalidate() }
        lock_start_contest(lock_create(make))
        defer { lock_end_contest() }
        let probe = LockProbe(capturer: capturer)
        let waiter = lock_contestant()
        var told = 0
        // Until enough were told; on a machine without time for it, fewer.
        for _ in 0..<20_000 where told < 200 {
            let before = lock_turn()
            guard let call = StackCapturer.sighting(ofThread: waiter)?.systemCall else { continue }
            let finding = probe.follow(waiter, capturedIn: call)
            // The lock was in one and the same thread's hands all the time.
            guard before == lock_turn(), before != 0, let owner = finding?.waits.first?.sight.owner else { continue }
            told += 1
            try #require(owner == Int32(before >> 32))
        }
        #expect(told > 0)
    }
}
