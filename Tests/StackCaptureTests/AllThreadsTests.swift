import CStalls
import Foundation
import StackCapture
import Synchronization
import TestSupport
import Testing

/// A thread that starts threads which live as long as one sample takes.
private final class Churn: Sendable {
    private let isOver = Atomic(false)
    private let hasEnded = Atomic(false)

    init() {
        Thread.detachNewThread { [self] in
            while !isOver.load(ordering: .relaxed) { Stall().finish() }
            hasEnded.store(true, ordering: .releasing)
        }
    }

    func finish() {
        isOver.store(true, ordering: .relaxed)
        while !hasEnded.load(ordering: .acquiring) { sched_yield() }
    }
}

extension CaptureTests {
    @Suite("All threads")
    struct AllThreadsTests {
        let capturer: StackCapturer

        init() throws {
            capturer = try StackCapturer(deadline: .seconds(5))
        }

        private func threads(of result: ThreadStacks, in function: String) -> [[Int32]] {
            result.groups.filter { names(of: $0.stack).contains(function) }.map { $0.threads.map(\.threadID) }
        }

        @Test("500 sleeping and 8 running threads are all captured, and equal stacks are merged")
        func many() throws {
            let parked = (0..<5).map { kind in
                (0..<100).map { _ in Stall(kind == 4 ? STALL_READ : STALL_LOCK, depth: 3 + kind * 10) }
            }
            defer { for stall in parked.joined() { stall.finish() } }
            for stall in parked.joined() { _ = try capturer.captureBlocked(stall) }
            let running = (0..<8).map { _ in Stall(STALL_SPIN, depth: 2) }
            defer { for stall in running { stall.finish() } }

            var result = try capturer.captureAll(within: .seconds(60)).get()
            // A running thread has only a part of the time to answer: on a busy machine it may not run meanwhile.
            let numbers = Set(running.map(\.threadID))
            for _ in 0..<200 where numbers.isDisjoint(with: result.groups.flatMap(\.threads).map(\.threadID)) {
                result = try capturer.captureAll(within: .seconds(60)).get()
            }
            print("all: \(result.groups.count) stacks in \(result.duration), \(result.missing.map(\.error.code.name))")
            for (kind, stalls) in parked.enumerated() {
                let numbers = stalls.map(\.threadID)
                let group = try #require(result.groups.first { $0.threads.map(\.threadID).contains(numbers[0]) })
                #expect(group.threads.map(\.threadID) == numbers)
                #expect(group.threads.allSatisfy { $0.method == .quiet && $0.cost.heldNanoseconds == 0 })
                #expect(group.threads.allSatisfy { $0.systemCall?.name == (kind == 4 ? "read" : "futex") })
                #expect(group.stack.isComplete)
                #expect(names(of: group.stack).count { $0 == "stall_descend" } == 4 + kind * 10)
                let alone = try capturer.captureBlocked(stalls[50])
                #expect(group.stack.frames == alone.frames)
            }
            let spinning = threads(of: result, in: "stall_in_spin").joined().sorted()
            let missing = result.missing.map(\.threadID)
            #expect(Set(spinning + missing).isSuperset(of: running.map(\.threadID)))
            #expect(spinning.count > 0)
        }

        @Test(
            "threads that wait in the same function of different pools have different stacks"
        )
        func outerFrames() throws {
            let sides = [STALL_LEFT, STALL_RIGHT].map { kind in (0..<4).map { _ in Stall(kind, depth: 100) } }
            defer { for stall in sides.joined() { stall.finish() } }
            let alone = try sides.map { try $0.map { try capturer.captureBlocked($0).frames.count } }
            #expect(Set(alone.joined()).count == 1, "only then do the counts of frames not tell them apart")
            let result = try capturer.captureAll(within: .seconds(60)).get()
            for (side, function) in zip(sides, ["stall_from_left", "stall_from_right"]) {
                #expect(threads(of: result, in: function) == [side.map(\.threadID)])
            }
        }

        @Test(
            "a handler that waits in the middle of its copy holds the others up, and none is missing because of it",
            .enabled(if: Self.mayHoldPages, "userfaultfd(2) is not permitted")
        )
        func unfinishedHandler() throws {
            let hasty = try StackCapturer(signal: SIGVTALRM, deadline: .milliseconds(20))
            let sleeper = Stall(STALL_LOCK)
            defer { sleeper.finish() }
            _ = try capturer.captureBlocked(sleeper)
            let held = try unsafe #require(stall_hold_page())
            defer { unsafe stall_held_finish(held) }
            let (thread, low, high) = unsafe (stall_held_thread(held), stall_held_low(held), stall_held_high(held))
            // On a busy machine it may not run in time. The limit only ends a hang.
            let end = ContinuousClock.now + .seconds(60)
            var error: CaptureError?
            while error?.code != .handlerStuck, ContinuousClock.now < end {
                guard case .failure(let next) = hasty.capture(threadID: thread, stack: UInt(low)..<UInt(high)) else {
                    break
                }
                error = next
            }
            try #require(error?.code == .handlerStuck)
            // If that comes before the captures begin, nothing is held up, and nothing shown.
            let place = UInt(bitPattern: held)
            Thread.detachNewThread {
                usleep(50_000)
                unsafe stall_release_page(OpaquePointer(bitPattern: place)!)
            }
            let result = try hasty.captureAll(within: .seconds(60)).get()
            #expect(result.missing.allSatisfy { $0.error.code != .handlerStuck }, "\(result.missing)")
            #expect(threads(of: result, in: "stall_in_lock").joined().contains(sleeper.threadID))
        }

        private static let mayHoldPages: Bool = {
            guard let held = unsafe stall_hold_page() else { return false }
            unsafe stall_release_page(held)
            unsafe stall_held_finish(held)
            return true
        }()

        @Test("the caller's own thread and excluded ones are not captured")
        func excluded() throws {
            let stalls = (0..<3).map { _ in Stall(STALL_LOCK) }
            defer { for stall in stalls { stall.finish() } }
            for stall in stalls { _ = try capturer.captureBlocked(stall) }
            let own = try #require(ThreadIdentity.current()).threadID
            let result = try capturer.captureAll(except: [stalls[1].threadID], within: .seconds(60)).get()
            let seen = result.groups.flatMap(\.threads).map(\.threadID) + result.missing.map(\.threadID)
            #expect(Set(seen).count == seen.count)
            #expect(!seen.contains(own) && !seen.contains(stalls[1].threadID))
            #expect(seen.contains(stalls[0].threadID) && seen.contains(stalls[2].threadID))
            #expect(threads(of: result, in: "stall_in_lock") == [[stalls[0].threadID, stalls[2].threadID]])
        }

        @Test("threads that start and exit meanwhile harm nothing, and the others are all found")
        func churning() throws {
            let stalls = (0..<20).map { _ in Stall(STALL_LOCK, depth: 9) }
            defer { for stall in stalls { stall.finish() } }
            for stall in stalls { _ = try capturer.captureBlocked(stall) }
            let churn = Churn()
            defer { churn.finish() }
            let numbers = stalls.map(\.threadID)
            for _ in 0..<50 {
                let result = try capturer.captureAll(within: .seconds(60)).get()
                let group = try #require(result.groups.first { $0.threads.map(\.threadID).contains(numbers[0]) })
                #expect(group.threads.map(\.threadID) == numbers)
                // The C library blocks all signals of a thread that begins or is about to end.
                let reasons: Set<CaptureError.Code> = [
                    .threadGone, .notDelivered, .threadKeptMoving, .stackOutOfBounds, .memoryUnreadable, .signalBlocked,
                ]
                #expect(reasons.isSuperset(of: result.missing.map(\.error.code)))
            }
        }

        @Test("the capture ends when its time is up, and the remaining threads say so")
        func deadline() throws {
            let stalls = (0..<50).map { _ in Stall(STALL_LOCK) }
            defer { for stall in stalls { stall.finish() } }
            let result = try capturer.captureAll(within: .zero).get()
            #expect(result.groups.isEmpty)
            #expect(result.missing.count >= 50)
            #expect(result.missing.allSatisfy { $0.error.code == .notReached })
        }

        @Test("they are captured without allocation: one of them holds malloc's lock")
        func mallocHeld() throws {
            let host = Process()
            let pipe = Pipe()
            host.executableURL = .built("capture-host")
            host.arguments = ["malloc"]
            host.environment = ProcessInfo.processInfo.environment.merging([
                "MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
            ]) { $1 }
            host.standardOutput = pipe
            try host.run()
            let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            host.waitUntilExit()
            print("malloc: \(output)")
            #expect(output.contains("\"hold_here\""))
            #expect(output.contains("\"allocate_until_released\""))
            #expect(output.contains("WAITING 8"))
        }

        @Test("the capture as a whole fails only if the capturer is invalidated")
        func invalidated() {
            capturer.invalidate()
            guard case .failure(let error) = capturer.captureAll() else { return #expect(Bool(false)) }
            #expect(error.code == .invalidated)
        }
    }
}
