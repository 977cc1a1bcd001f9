import RunLoopKit
import StackCapture
import StallReports
import TestSupport
import Testing

@testable import StallDiagnosis
@testable import StallMonitor

/// Thread 1 is stalled and waits for 2, which waits for 3 or for 1.
@Suite("Locks and their owners in a report")
struct LockSummaryTests {
    private func wait(_ thread: Int32, for owner: Int32?, _ kind: LockKind = .mutex) throws -> LockFinding.Wait {
        let number = try #require((0..<600).first { SystemCall(number: $0, arguments: []).name == "futex" })
        let address = UInt(thread) * 0x1000
        let call = SystemCall(number: number, arguments: [address, 0x80, 2, 0, 0, 0])
        let futex = try #require(FutexWait(call))
        let memory = LockMemory(words: { _, _ in nil }, hasThread: { _ in true })
        var reading = LockReading(futex, waiter: thread, memory)
        (reading.kind, reading.owner, reading.knownBy) = (kind, owner, owner == nil ? nil : .mutexOwner)
        let sighting = try #require(StackCapturer.sighting(ofThread: StackCapturer.callingThread))
        return .init(
            threadID: thread,
            evidence: evidence("t\(thread)"),
            known: .futex(futex),
            reading: reading,
            sighting: sighting
        )
    }

    private func evidence(_ name: String) -> ThreadEvidence? {
        ThreadEvidence(stat: "7 (\(name)) S 1 1 1 0 -1 0 0 0 0 0 0", schedstat: "1 2 3")
    }

    private func owner(_ thread: Int32) -> LockFinding.Owner {
        .init(
            threadID: thread,
            evidence: evidence("t\(thread)"),
            time: .now,
            stack: .failure(CaptureError(.threadGone))
        )
    }

    private func stack(_ thread: Int32, _ role: StackRole, _ names: String...) -> StallReport.Stack {
        .init(
            role: role,
            thread: .init(id: thread),
            capturedAt: .now(),
            frames: names.map { .init(address: 1, symbol: $0) }
        )
    }

    private func report(_ finding: LockFinding, _ stacks: [StallReport.Stack]) -> StallReport {
        let summary = LockSummary(finding, stacks)
        var report = StallReport.minimal()
        report.cause = summary.cause(from: .init(verdict: .blocked, summary: "The thread waited."))
        report.stacks = summary.kept(stacks)
        return report
    }

    @Test("A chain is reported in one sentence, from the stalled thread outwards")
    func chain() throws {
        let waits = [try wait(1, for: 2), try wait(2, for: 3, .recursiveMutex)]
        let finding = LockFinding(waits: waits, owners: [owner(2), owner(3)])
        let report = report(
            finding,
            [stack(1, .stalled, "pthread_mutex_lock"), stack(2, .lockOwner, "pthread_mutex_lock")]
        )
        #expect(
            report.cause.summary
                == "The thread waited for a pthread mutex at 0x1000, held by thread 2 (t2), which waited for "
                + "a recursive pthread mutex at 0x2000, held by thread 3 (t3)."
        )
        #expect(report.cause.chain?.count == 2 && report.cause.cycle == nil && report.cause.verdict == .blocked)
    }

    @Test("A worker of libdispatch has its name for display, not the end of its queue's name")
    func worker() throws {
        let worker = LockFinding.Owner(
            threadID: 2,
            evidence: evidence("oot.default-qos"),
            time: .now,
            stack: .failure(CaptureError(.threadGone))
        )
        let finding = LockFinding(waits: [try wait(1, for: 2)], owners: [worker])
        let report = report(finding, [stack(1, .stalled, "pthread_mutex_lock")])
        #expect(report.cause.summary.hasSuffix(", held by thread 2 (libdispatch worker default-qos)."))
        #expect(report.cause.lock?.owner?.name == "oot.default-qos")
    }

    @Test("A circle is a deadlock; a lock that the names contradict does not close it")
    func circle() throws {
        let waits = [try wait(1, for: 2), try wait(2, for: 1)]
        let finding = LockFinding(waits: waits, owners: [owner(2)], closing: 0)
        let stalled = stack(1, .stalled, "pthread_mutex_lock")
        let closed = report(finding, [stalled, stack(2, .lockOwner, "pthread_mutex_lock")])
        #expect(closed.cause.verdict == .deadlock && closed.cause.cycle?.map(\.thread.id) == [1, 2])
        #expect(closed.cause.cycle?.last?.lock.owner?.name == "t1")
        let open = report(finding, [stalled, stack(2, .lockOwner, "syscall", "wait_in_own_way")])
        #expect(open.cause.verdict == .blocked && open.cause.cycle == nil)
        #expect(open.cause.lock?.owner?.id == 2 && open.cause.chain?.last?.lock.owner == nil)
        #expect(open.cause.summary.hasSuffix("at 0x2000, whose holder could not be told."))
    }

    @Test("A lock with another owner at each look is reported as changing hands")
    func changedHands() throws {
        var wait = try wait(1, for: nil)
        wait.changedHands = true
        let report = report(LockFinding(waits: [wait]), [stack(1, .stalled, "pthread_mutex_lock")])
        #expect(
            report.cause.summary
                == "The thread waited for a pthread mutex at 0x1000, which changed hands while it was looked at."
        )
        #expect(report.cause.lock?.owner == nil)
    }

    @Test("The stack of a thread that is not the owner is left out")
    func noOwner() throws {
        let finding = LockFinding(waits: [try wait(1, for: 2)], owners: [owner(2)])
        let report = report(finding, [stack(1, .stalled, "syscall", "wait_in_own_way"), stack(2, .lockOwner, "main")])
        #expect(report.cause.lock?.kind == .futex && report.cause.lock?.owner == nil)
        #expect(report.stacks.map(\.thread.id) == [1])
    }

    @Test("A lock is no cause if the thread was asleep elsewhere for longer, unless it is a deadlock")
    func longerWait() throws {
        let stacks = [stack(1, .stalled, "pthread_mutex_lock"), stack(2, .lockOwner, "pthread_mutex_lock")]
        let finding = LockFinding(waits: [try wait(1, for: 2)], owners: [owner(2)])
        let blocked = StallReport.Cause(verdict: .blocked, summary: "The thread waited in read(2).")
        func site(_ name: String, _ first: UInt) throws -> WaitSite {
            let number = try #require(SystemCall.numbers(of: [name]).first)
            let call = SystemCall(number: number, arguments: [first, 0x80, 2, 0, 0, 0])
            return WaitSite(call, state: "S") { _, _ in nil }
        }
        for elsewhere in [try site("read", 5), try site("futex", 0x2000)] {
            let summary = LockSummary(finding, stacks).relevant(to: blocked, elsewhere)
            #expect(summary.cause(from: blocked) == blocked && summary.kept(stacks).map(\.thread.id) == [1])
            let computing = StallReport.Cause(verdict: .onCPU)
            #expect(LockSummary(finding, stacks).relevant(to: computing, elsewhere).waits.count == 1)
            let circle = LockFinding(waits: [try wait(1, for: 2), try wait(2, for: 1)], owners: [owner(2)], closing: 0)
            let deadlock = LockSummary(circle, stacks).relevant(to: blocked, elsewhere).cause(from: blocked)
            #expect(deadlock.verdict == .deadlock)
        }
        // A condition's waiters wait at one of two words.
        for same in [try site("futex", 0x1000), try site("futex", 0x1004), nil] {
            #expect(LockSummary(finding, stacks).relevant(to: blocked, same).waits.count == 1)
        }
    }

    @Test("A cause other than a wait keeps its sentence; the lock is reported as well")
    func otherVerdict() throws {
        var other = report(
            LockFinding(waits: [try wait(1, for: nil, .condition)]),
            [stack(1, .stalled, "pthread_cond_wait")]
        )
        #expect(other.cause.summary == "The thread waited for a condition variable at 0x1000, which no thread owns.")
        (other.cause.verdict, other.cause.summary) = (.onCPU, "The thread was computing.")
        other.cause = LockSummary(LockFinding(waits: [try wait(1, for: 2)]), other.stacks).cause(from: other.cause)
        #expect(other.cause.summary == "The thread was computing." && other.cause.lock?.kind == .mutex)
    }
}
