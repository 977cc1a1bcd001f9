import CLocks
import RunLoopKit
import StackCapture
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

@Suite("A lock that changes hands while it is looked at", .serialized, .captureSignal, .timeLimit(.minutes(10)))
struct LockContestTests {
    @Test(
        "Only a thread that had the lock is reported as its owner",
        arguments: [LOCK_NORMAL, LOCK_RW, LOCK_INHERITING, LOCK_ROBUST]
    )
    func contest(_ make: lock_make) throws {
        let capturer = try StackCapturer()
        defer { capturer.invalidate() }
        lock_start_contest(lock_create(make))
        defer { lock_end_contest() }
        let probe = LockProbe(capturer: capturer)
        let waiter = lock_contestant()
        var (told, looks) = (0, 0)
        // Until there are enough reports; fewer on a machine without time for it. The time limit only ends a hang: in all the looks of a
        // moment, the waiter may be one that waits for a CPU.
        let deadline = MonotonicInstant.now + .seconds(60)
        while told < 200, looks < 20_000 || told == 0 && MonotonicInstant.now < deadline {
            looks += 1
            let before = lock_turn()
            guard let call = StackCapturer.sighting(ofThread: waiter)?.systemCall else { continue }
            let finding = probe.follow(waiter, capturedIn: call)
            // One thread held the lock all the time.
            guard before == lock_turn(), before != 0, let owner = finding?.waits.first?.reading.owner else { continue }
            told += 1
            try #require(owner == Int32(before >> 32))
        }
        #expect(told > 0)
    }

    /// A waiter that sleeps, and memory in which the lock has another owner at each look, or from the second look on.
    @Test("A thread that has released the lock meanwhile is not reported as its owner", arguments: [2, Int.max])
    func handedOn(_ looks: Int) throws {
        let capturer = try StackCapturer()
        defer { capturer.invalidate() }
        let (lock, gate) = (lock_create(LOCK_NORMAL), gate_create())
        let former = unsafe lock_start_holder(lock, gate, "former")
        let next = unsafe lock_start_holder(lock_create(LOCK_NORMAL), gate, "next")
        let waiter = unsafe lock_start_waiter(lock, "waiter")
        defer { gate_open(gate) }
        var call: SystemCall?
        while call?.name != "futex" { call = StackCapturer.sighting(ofThread: waiter)?.systemCall }
        var finding: LockFinding?
        // The probe begins no second look after 100 ms. Again, a hundred times at most, if this thread had to wait for a CPU for so long.
        for _ in 0..<100 {
            let owners = Changing([former, next], until: looks)
            let probe = LockProbe(capturer: capturer) { address, count in
                guard var words = capturer.words(at: address, count: count) else { return nil }
                // The owner's id is eight bytes into a mutex.
                if address == UInt(lock_address(lock)), count > 2 { words[2] = UInt32(owners.next()) }
                return words
            }
            let start = MonotonicInstant.now
            finding = probe.follow(waiter, capturedIn: call)
            if MonotonicInstant.now - start < .milliseconds(50) { break }
        }
        let found = try #require(finding)
        let wait = try #require(found.waits.first)
        if looks == .max {
            #expect(wait.reading.owner == nil && wait.changedHands && found.owners.isEmpty)
        } else {
            #expect(wait.reading.owner == next && !wait.changedHands && found.owners.map(\.threadID) == [next])
        }
        #expect(wait.reading.kind == .mutex)
    }
}

/// Two ids alternately, and finally the second one for good.
private final class Changing {
    private let numbers: [Int32]
    private let last: Int
    private var looks = 0

    init(_ numbers: [Int32], until last: Int) { (self.numbers, self.last) = (numbers, last) }

    func next() -> Int32 {
        looks += 1
        return numbers[looks >= last ? 1 : (looks - 1) % 2]
    }
}
