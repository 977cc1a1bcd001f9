import CLocks
import Dispatch
import Glibc
import RunLoopKit
import StackCapture
import StallDetection
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

@Suite(
    "A stall in a lock",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(20))
)
struct LockStallTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let log = EventLog()
    private let worker = StallingLoop()

    private func start(_ change: (inout StallMonitor.Configuration) -> Void = { _ in }) -> StallMonitor {
        var configuration = StallMonitor.Configuration.everyLock(in: directory)
        change(&configuration)
        return StallMonitor.start(configuration, watching: [worker.loop], onEvent: log.handler)
    }

    /// The report of a stall of the worker's loop in a lock. `release` ends the stall once it is reported.
    private func report(of stall: @escaping @Sendable () -> Void, release: () -> Void) throws -> StallReport {
        let monitor = start()
        let report = try worker.lockReport(of: stall, from: monitor, log, release: release)
        #expect(try ReportReader(path: directory.path + "/reports").contents().reports.contains(report))
        return report
    }

    private func check(_ scene: LockScene, _ report: StallReport, heldBy owner: Int32) throws {
        let lock = try #require(report.cause.lock)
        #expect(report.cause.verdict == .blocked)
        #expect(lock.kind == scene.kind && lock.knownBy == scene.evidence, "\(report.cause)")
        #expect(lock.owner?.id == (owner == 0 ? nil : owner), "\(report.cause)")
        if let address = scene.address { #expect(lock.address.rawValue == address) }
        let owners = report.stacks.filter { $0.role == .lockOwner }
        guard owner != 0 else { return #expect(owners.isEmpty) }
        #expect(lock.owner?.name == "lock-holder" && owners.map(\.thread.id) == [owner])
        let functions = try #require(owners.first).frames.compactMap(\.function)
        #expect(functions.contains { $0.contains(scene.holdsIn) }, "\(functions)")
        #expect(
            report.cause.summary.contains("thread \(owner) (lock-holder), which was in read(2) on pipe:["),
            "\(report.cause.summary)"
        )
    }

    @Test(
        "The lock is reported with kind and address, its owner with thread id, name and stack",
        arguments: LockScene.pthreads + [.readingWaiter, .join, .swiftMutex, .swiftOnce, .dispatchOnce]
            + LockScene.queues
    )
    func owned(_ scene: LockScene) throws {
        let gate = gate_create()
        let owner = scene.hold(gate)
        // Its stack is taken a moment after the loop has begun to wait.
        waitUntil(owner, isIn: "read")
        let report = try report(of: scene.wait, release: { gate_open(gate) })
        try check(scene, report, heldBy: owner)
        #expect(report.stacks.first?.role == .stalled && report.culprit?.stack == 0)
    }

    @Test("A lock without an owner is reported without one", arguments: LockScene.ownerless)
    func ownerless(_ scene: LockScene) throws {
        let gate = gate_create()
        _ = scene.hold(gate)
        let report = try report(of: scene.wait) {
            gate_open(gate)
            scene.finish()
        }
        try check(scene, report, heldBy: 0)
    }

    @Test("A futex in memory that looks like another thread's mutex has no owner")
    func deceived() throws {
        let lock = lock_create(LOCK_DECEIVER)
        let gate = gate_create()
        unsafe lock_deceive(lock, lock_start_holder(lock_create(LOCK_NORMAL), gate, "innocent"))
        let report = try report(of: { lock_take(lock) }) {
            lock_release(lock)
            gate_open(gate)
        }
        #expect(report.cause.lock?.kind == .futex && report.cause.lock?.owner == nil, "\(report.cause)")
        #expect(!report.stacks.contains { $0.role == .lockOwner })
    }

    @Test("A mutex whose owner has ended without releasing it is reported as abandoned")
    func abandoned() throws {
        let lock = lock_create(LOCK_CHECKING)
        let gone = lock_abandon(lock)
        let report = try report(of: { _ = lock_take_within(lock, 2_000) }) {}
        #expect(report.cause.lock?.owner == nil && report.cause.lock?.abandonedBy == gone, "\(report.cause)")
        #expect(report.cause.summary.contains("thread \(gone), which has ended"))
    }

    @Test("A computing owner is captured")
    func busyOwner() throws {
        let (lock, gate) = (lock_create(LOCK_NORMAL), gate_create())
        let owner = unsafe lock_start_busy_holder(lock, gate, "busy")
        let report = try report(of: {
            lock_take(lock)
            lock_release(lock)
        }) { gate_open(gate) }
        #expect(report.cause.lock?.owner?.id == owner, "\(report.cause)")
        let stack = try #require(report.stacks.first { $0.role == .lockOwner })
        #expect(stack.frames.contains { $0.function == "lock_hold_busily" } || stack.error != nil, "\(stack)")
        #expect(report.cause.lock?.ownerCall == nil)
    }

    @Test("A thread that starts to wait for a lock late in its stall is also reported with the owner")
    func lateWait() throws {
        let (lock, gate) = (lock_create(LOCK_NORMAL), gate_create())
        let owner = unsafe lock_start_holder(lock, gate, "lock-holder")
        let monitor = start()
        worker.loop.perform {
            _ = stallByComputing(300)
            startThread {
                _ = stallInSleep(1_500)
                gate_open(gate)
            }
            lock_take(lock)
            lock_release(lock)
        }
        // Also one that started while the machine had no time for the thread.
        #expect(log.wait { $0.ended.contains { $0.cause.lock != nil } })
        monitor.stop()
        worker.end()
        let report = try #require(log.ended.first { $0.cause.lock != nil })
        #expect(report.cause.lock?.owner?.id == owner && report.cause.lock?.kind == .mutex, "\(report.cause)")
        #expect(report.stacks.contains { $0.role == .lockOwner && $0.thread.id == owner })
    }

    @Test("If switched off, no owner is looked for")
    func switchedOff() throws {
        let (lock, gate) = (lock_create(LOCK_NORMAL), gate_create())
        _ = unsafe lock_start_holder(lock, gate, "lock-holder")
        let monitor = start { $0.followsLocks = false }
        worker.loop.perform {
            lock_take(lock)
            lock_release(lock)
        }
        let isInFutex = log.wait { $0.began.contains { $0.cause.systemCall?.name == "futex" } }
        gate_open(gate)
        monitor.stop()
        worker.end()
        #expect(isInFutex && log.began.allSatisfy { $0.cause.lock == nil })
        #expect(log.began.allSatisfy { $0.stacks.allSatisfy { $0.role == .stalled } })
    }

    @Test("A wait with a timeout is reported as one")
    func timedWait() throws {
        let (lock, gate) = (lock_create(LOCK_NORMAL), gate_create())
        let owner = unsafe lock_start_holder(lock, gate, "lock-holder")
        let report = try report(of: { if lock_take_within(lock, 60_000) { lock_release(lock) } }) { gate_open(gate) }
        #expect(report.cause.lock?.owner?.id == owner && report.cause.lock?.timed == true, "\(report.cause)")
    }

    @Test("The chain of owners is followed to the one that waits for no lock")
    func chain() throws {
        let (gate, outer) = (gate_create(), lock_create(LOCK_RECURSIVE))
        let (box, queue) = (MutexBox(), DispatchQueue(label: "test.chain"))
        let last = LockScene.holder { ready in _ = holdSwiftMutex(box, gate, ready) }
        let middle = LockScene.holder { ready in
            queue.sync {
                ready()
                box.mutex.withLock { $0 += 1 }
            }
        }
        let first = LockScene.holder { ready in
            lock_take(outer)
            ready()
            queue.sync {}
            lock_release(outer)
        }
        for thread in [first, middle] { waitUntil(thread, isIn: "futex") }
        let report = try report(of: {
            lock_take(outer)
            lock_release(outer)
        }) { gate_open(gate) }
        #expect(report.cause.verdict == .blocked && report.cause.cycle == nil)
        let chain = try #require(report.cause.chain)
        #expect(chain.map(\.lock.kind) == [.recursiveMutex, .dispatchQueue, .swiftMutex], "\(report.cause.summary)")
        #expect(chain.map(\.lock.owner?.id) == [first, middle, last])
        #expect(chain.map(\.thread.id) == [report.thread.id, first, middle])
        #expect(chain[1].lock.label == "test.chain")
        #expect(report.stacks.filter { $0.role == .lockOwner }.map(\.thread.id) == [first, middle, last])
    }

    @Test("A chain that ends at a socket is reported with both ends of the socket")
    func chainToSocket() throws {
        let (lock, pair) = (lock_create(LOCK_NORMAL), try #require(TCPPair()))
        let owner = LockScene.holder { ready in
            lock_take(lock)
            ready()
            _ = pair.stallInReceive(2_000)
            lock_release(lock)
        }
        waitUntil(owner, isIn: "recvfrom")
        let report = try report(of: {
            lock_take(lock)
            lock_release(lock)
        }) {}
        let socket = try #require(report.cause.lock?.ownerCall?.descriptors?.first?.socket, "\(report.cause)")
        #expect(socket.peer == "127.0.0.1:\(pair.port)" && socket.state == "established")
        #expect(report.cause.summary.contains("(lock-holder), which was in recvfrom(2) on tcp 127.0.0.1:"))
        #expect(report.cause.summary.contains("→ 127.0.0.1:\(pair.port), established"), "\(report.cause.summary)")
    }

    @Test("A circle with a timeout is a deadlock until it expires, and says so")
    func timedDeadlock() throws {
        let (a, b, gate) = (lock_create(LOCK_NORMAL), lock_create(LOCK_RECURSIVE), gate_create())
        let other = unsafe lock_start_crossing(a, gate, b, "crossing")
        worker.perform {
            lock_take(b)
            gate_open(gate)
        }
        waitUntil(other, isIn: "futex")
        // The timeout only ends a hang.
        let report = try report(of: {
            if lock_take_within(a, 60_000) { lock_release(a) }
            lock_release(b)
        }) { lock_release(a) }
        #expect(
            report.cause.verdict == .deadlock && report.cause.cycle?.map(\.thread.id).last == other,
            "\(report.cause)"
        )
        #expect(report.cause.cycle?.map(\.lock.timed) == [true, false])
        #expect(report.cause.summary.contains("with a timeout"))
    }

    @Test("A request to another loop is reported with that loop, its thread and its stack")
    func loopRequest() throws {
        let gate = gate_create()
        let asked = try WorkerThread(name: "asked-loop")
        let owner = try #require(asked.loop.thread).id
        asked.loop.perform { _ = holdQueue(gate) {} }
        waitUntil(owner, isIn: "read")
        let report = try report(of: { _ = try? asked.loop.performAndWait { 2 } }) { gate_open(gate) }
        asked.stop()
        let lock = try #require(report.cause.lock)
        #expect(
            lock.kind == .loopRequest && lock.knownBy == .waitPoint && lock.label == "asked-loop",
            "\(report.cause)"
        )
        #expect(lock.owner?.id == owner && report.cause.verdict == .blocked && !lock.timed)
        let stack = try #require(report.stacks.first { $0.role == .lockOwner })
        #expect(stack.thread.id == owner && stack.frames.contains { $0.function?.contains("holdQueue") == true })
        #expect(report.cause.summary.contains("a request to another run loop (asked-loop) at 0x"))
        #expect(
            report.cause.summary.contains(
                ", to be served by thread \(owner) (asked-loop), which was in read(2) on pipe:["
            ),
            "\(report.cause.summary)"
        )
        let frames = report.stacks.first { $0.role == .stalled }?.frames.compactMap(\.function) ?? []
        #expect(frames.contains("event_run_loop_wait_for_a_perform_request"), "\(frames)")
    }

    @Test("The end of a worker is reported with the worker and its stack")
    func workerEnd() throws {
        let gate = gate_create()
        let ending = try WorkerThread(name: "ending-worker")
        let owner = try #require(ending.loop.thread).id
        ending.loop.perform { _ = holdQueue(gate) {} }
        // The worker is at the gate before it is asked to stop.
        waitUntil(owner, isIn: "read")
        ending.stop()
        let report = try report(of: { ending.join() }) { gate_open(gate) }
        #expect(report.cause.lock?.kind == .workerEnd && report.cause.lock?.owner?.id == owner, "\(report.cause)")
        #expect(report.cause.summary.contains("the end of a worker thread at 0x"), "\(report.cause.summary)")
        #expect(report.cause.summary.contains(": thread \(owner) (ending-worker), which was in read(2)"))
        #expect(report.stacks.contains { $0.role == .lockOwner && $0.thread.id == owner })
    }

    @Test("Two loops that wait for each other are a deadlock, reported with the loops")
    func loopDeadlock() throws {
        let other = try WorkerThread(name: "other-loop")
        let owner = try #require(other.loop.thread).id
        let loop = worker.loop
        let report = try report(of: {
            // Nobody serves this request: this loop waits, too.
            other.loop.perform { _ = try? loop.performAndWait(timeout: .seconds(3)) { 1 } }
            _ = try? other.loop.performAndWait { 2 }
        }) {}
        other.stop()
        #expect(report.cause.verdict == .deadlock, "\(report.cause)")
        let cycle = try #require(report.cause.cycle)
        #expect(cycle.map(\.lock.kind) == [.loopRequest, .loopRequest] && cycle.map(\.lock.timed) == [false, true])
        #expect(cycle.map(\.thread.id) == [report.thread.id, owner])
        #expect(cycle.map(\.lock.owner?.id) == [owner, report.thread.id])
        #expect(report.cause.summary.contains("a request to another run loop (other-loop)"), "\(report.cause.summary)")
    }

    @Test("Two or three threads that wait for each other are a deadlock, with the whole circle", arguments: [2, 3])
    func deadlock(_ count: Int) throws {
        let locks = (0..<count).map { _ in lock_create(LOCK_NORMAL) }
        // The loop holds the first and waits for the second; each other thread holds one and waits for the next.
        let gate = gate_create()
        let others = (1..<count).map {
            unsafe lock_start_crossing(locks[$0], gate, locks[($0 + 1) % count], "crossing-\($0)")
        }
        worker.perform {
            lock_take(locks[0])
            gate_open(gate)
        }
        // The others wait when the loop closes the circle: one that comes later than the report is missing in it.
        for other in others { waitUntil(other, isIn: "futex") }
        let report = try report(of: {
            lock_take(locks[1])
            lock_release(locks[1])
            lock_release(locks[0])
        }) {
            // To the thread that holds it, which then does not release it.
            for lock in locks.dropFirst() { lock_release(lock) }
        }
        #expect(report.cause.verdict == .deadlock, "\(report.cause)")
        let cycle = try #require(report.cause.cycle)
        #expect(cycle.map(\.thread.id) == [report.thread.id] + others)
        #expect(cycle.map(\.lock.owner?.id) == others + [report.thread.id])
        #expect(cycle.map(\.lock.address.rawValue) == (locks.dropFirst() + locks.prefix(1)).map(lock_address))
        #expect(report.cause.summary.hasPrefix("Deadlock of \(count) threads: thread \(report.thread.id)"))
        let stacks = report.stacks.filter { $0.role == .lockOwner }
        #expect(stacks.map(\.thread.id) == others)
        #expect(stacks.allSatisfy { $0.frames.contains { $0.function == "lock_cross" } })
    }

    @Test("A thread that takes a lock twice deadlocks with itself")
    func selfDeadlock() throws {
        let lock = lock_create(LOCK_NORMAL)
        let report = try report(of: {
            lock_take(lock)
            lock_take(lock)
            lock_release(lock)
        }) { lock_release(lock) }
        #expect(report.cause.verdict == .deadlock && report.cause.cycle?.count == 1, "\(report.cause)")
        #expect(report.cause.lock?.owner?.id == report.thread.id)
        #expect(!report.stacks.contains { $0.role == .lockOwner })
    }

    @Test("A loop that waits for two deadlocked threads is reported as such")
    func behindDeadlock() throws {
        let (a, b) = (lock_create(LOCK_NORMAL), lock_create(LOCK_NORMAL))
        let gate = gate_create()
        let first = unsafe lock_start_crossing(a, gate, b, "first")
        let second = unsafe lock_start_crossing(b, gate, a, "second")
        gate_open(gate)
        for thread in [first, second] { waitUntil(thread, isIn: "futex") }
        let report = try report(of: {
            lock_take(a)
            lock_release(a)
        }) {
            lock_release(a)
            lock_release(b)
        }
        #expect(report.cause.verdict == .deadlock, "\(report.cause)")
        #expect(report.cause.cycle?.map(\.thread.id) == [first, second])
        #expect(report.cause.chain?.map(\.thread.id) == [report.thread.id, first, second])
    }
}
