import CStackCapture
import CStalls
import Glibc
import StackCapture
import Symbolication
import Synchronization
import TestSupport
import Testing

extension CaptureTests {
    @Suite("A running thread")
    struct RunningThreadTests {
        let capturer: StackCapturer

        init() throws {
            capturer = try StackCapturer(deadline: .seconds(60))
        }

        @Test("it copies its own stack, and every frame is found", arguments: [0, 7, 200, 900])
        func spinning(depth: Int) throws {
            let stall = Stall(STALL_SPIN, depth: depth)
            defer { stall.finish() }
            let stack = try capturer.capture(stall).get()
            #expect(stack.method == .signal)
            #expect(stack.systemCall == nil)
            #expect(stack.isComplete)
            #expect(stack.cost.heldNanoseconds > 0)
            let expected =
                ["stall_in_spin", "stall_at"] + Array(repeating: "stall_descend", count: depth + 1) + ["run"]
            let names = names(of: stack)
            #expect(names.starts(with: expected), "\(names)")
            #expect(stack.frames.first?.found == .register)
            #expect(stack.frames.dropFirst().allSatisfy { $0.found == .unwindTable })
        }

        @Test(
            "if it runs only after the deadline, its stack is available to a later request"
        )
        func late() throws {
            // Without a wait: each capture's deadline has passed when its signal is sent.
            let hasty = try StackCapturer(signal: SIGVTALRM, deadline: .zero)
            let (stall, sleeper) = (Stall(STALL_SPIN, depth: 3), Stall(STALL_READ))
            defer { [stall, sleeper].forEach { $0.finish() } }
            func ask(since: UInt64) -> CapturedStack? {
                try? hasty.capture(threadID: stall.threadID, stack: stall.stack, since: since).get()
            }
            let start = monotonicNanoseconds()
            var stack: CapturedStack?
            while stack == nil { stack = ask(since: start) }
            let names = names(of: try #require(stack))
            #expect(stack?.method == .signal && names.starts(with: ["stall_in_spin", "stall_at"]), "\(names)")

            // A copy that was requested and not fetched is found, with its time, and only if it is recent enough.
            func leaveOpen() {
                while true {
                    let before = hasty.counters.signalsSent
                    if ask(since: .max) == nil, hasty.counters.signalsSent > before { return }
                }
            }
            leaveOpen()
            awaitProgress(of: stall.threadID)
            var found = hasty.lateCapture(threadID: stall.threadID, since: start)
            while found == nil {
                leaveOpen()
                awaitProgress(of: stall.threadID)
                found = hasty.lateCapture(threadID: stall.threadID, since: start)
            }
            #expect(found?.copiedAt ?? 0 >= start && found?.method == .signal)
            #expect(found?.frames.dropFirst() == stack?.frames.dropFirst())
            #expect(hasty.lateCapture(threadID: stall.threadID, since: start) == nil, "it is taken")

            // An operation in between replaces the copy, and so does the capturer's end.
            leaveOpen()
            while (try? hasty.capture(sleeper).get()) == nil {}
            #expect(hasty.lateCapture(threadID: stall.threadID, since: start) == nil)
            leaveOpen()
            hasty.invalidate()
            let another = try StackCapturer(signal: SIGVTALRM, deadline: .seconds(60))
            #expect(another.lateCapture(threadID: stall.threadID, since: start) == nil)
            #expect(try another.capture(stall).get().method == .signal)
        }

        @Test(
            "if its handler runs after the request was given up, it copies nothing: the memory may be another's stack"
        )
        func withdrawn() throws {
            let hasty = try StackCapturer(signal: SIGVTALRM, deadline: .zero)
            let stall = Stall(STALL_SPIN, depth: 3)
            defer { stall.finish() }
            var givenUp: UInt64 = 0
            while givenUp < 50 {
                let before = hasty.counters
                guard case .failure(let error) = hasty.capture(stall), error.code == .notDelivered,
                    hasty.counters.signalsSent > before.signalsSent
                else { continue }
                givenUp += 1
                // However late the processor handles the signal: it arrives, and is then counted, or it has copied something.
                let end = monotonicNanoseconds() + 60_000_000_000
                while hasty.counters.lateSignals == before.lateSignals, monotonicNanoseconds() < end { sched_yield() }
                try #require(hasty.counters.lateSignals == before.lateSignals + 1)
            }
        }

        @Test(
            "if it slept before the signal, the application's own signal copies nothing: the memory may be another's"
        )
        func movedOn() throws {
            stall_count_signals(SIGUSR2)
            defer { stall_reset_signal(SIGUSR2) }
            let another = try StackCapturer(signal: SIGUSR2, deadline: .seconds(5))
            let sleeper = Stall(STALL_READ, depth: 900)
            defer { sleeper.finish() }
            let expected = try another.captureBlocked(sleeper).frames
            let napper = NappingWorker(signal: SIGUSR2)
            defer { napper.finish() }
            for _ in 0..<200 {
                _ = another.capture(threadID: napper.identity.threadID, stack: napper.identity.stack)
                #expect(try another.capture(sleeper).get().frames == expected)
            }
        }

        /// `StackCapturer` asks only threads that it has just seen running, so this calls what it calls.
        @Test("if it was asleep before the signal, no request is left that a signal of the application would serve")
        func unsent() throws {
            stall_count_signals(SIGUSR2)
            defer { stall_reset_signal(SIGUSR2) }
            var opened: OpaquePointer?
            #expect(unsafe stackcap_open(SIGUSR2, false, &opened).status == STACKCAP_OK)
            let session = try unsafe #require(opened)
            defer { unsafe stackcap_close(session) }
            let (asked, other) = (Stall(STALL_READ, depth: 3), Stall(STALL_READ, depth: 9))
            defer { [asked, other].forEach { $0.finish() } }
            for stall in [asked, other] {
                waitUntil { StackCapturer.sighting(ofThread: stall.threadID)?.systemCall?.name == "read" }
            }
            var seen = stackcap_progress()
            var (low, high) = (UInt64(asked.stack.lowerBound), UInt64(asked.stack.upperBound))
            let asking = unsafe stackcap_copy_running(session, asked.threadID, low, high, &seen, 0, false)
            #expect(asking.status == STACKCAP_MOVED)

            (low, high) = (UInt64(other.stack.lowerBound), UInt64(other.stack.upperBound))
            var look = stackcap_look()
            #expect(unsafe stackcap_look_at(other.threadID, &look).status == STACKCAP_OK)
            #expect(unsafe stackcap_copy_blocked(session, other.threadID, low, high, &look).status == STACKCAP_OK)
            let counted = stall_counted_signals()
            stall_send_own(asked.threadID, SIGUSR2)
            waitUntil { stall_counted_signals() > counted }
            var unwound = unsafe stackcap_unwound()
            #expect(unsafe stackcap_unwind(session, &unwound).status == STACKCAP_OK)
            #expect(unsafe unwound.end == STACKCAP_END_COMPLETE, "the copy is still that of the other thread")
        }

        @Test("a caller without an unwind table is found by instructions, and only those frames say so")
        func frameSources() throws {
            for (kind, leaf) in [(STALL_BARE_SPIN, "stall_in_spin"), (STALL_BARE_READ, "stall_in_read")] {
                let stall = Stall(kind, depth: 2)
                defer { stall.finish() }
                let stack = try kind == STALL_BARE_READ ? capturer.captureBlocked(stall) : capturer.capture(stall).get()
                let names = names(of: stack)
                #expect(stack.isComplete)
                let at = try #require(names.firstIndex(of: leaf))
                #expect(names[(at + 1)...].starts(with: ["?", "call_through_bare_code"]), "\(names)")
                #expect(stack.frames[at + 2].found == .instructions)
                #expect(stack.frames.count { $0.found == .instructions } == 1)
                #expect(stack.frames[(at + 3)...].allSatisfy { $0.found == .unwindTable })
                #expect(names.count { $0 == "stall_descend" } == 3)
            }
        }

        #if arch(x86_64)
            @Test(
                "at a damaged unwind row the stack ends, and so does the capture",
                arguments: [
                    (STALL_ENDLESS_ROW, "stall_below_endless_row"), (STALL_DIVIDING_ROW, "stall_below_dividing_row"),
                    (STALL_REGISTER_ROW, "stall_below_register_row"), (STALL_CUT_ROW, "stall_below_cut_row"),
                    (STALL_UNKNOWN_ROW, "stall_below_unknown_row"),
                ]
            )
            func damagedRow(kind: stall_kind, function: String) throws {
                let stall = Stall(kind, depth: 2)
                defer { stall.finish() }
                for _ in 0..<3 {
                    let stack = try capturer.capture(stall).get()
                    #expect(names(of: stack) == ["stall_in_spin", function])
                    #expect(stack.truncation == .badFrame)
                }
            }
        #endif

        @Test("every capture is complete, whatever the thread is doing", arguments: [STALL_ALLOCATE, STALL_ITERATE])
        func storms(kind: stall_kind) throws {
            let stall = Stall(kind, depth: 4)
            defer { stall.finish() }
            try expectWholeStacks(of: stall, captures: 500)
        }

        @Test(
            "loading and unloading modules at the same address never meets a stale unwind table",
            .enabled(if: Plugins.canBeMade, "there is no clang to build the modules with")
        )
        func reloading() throws {
            let plugins = try #require(try Plugins())
            let stall = Stall(STALL_RELOAD, depth: 4, path: plugins.folder)
            defer { stall.finish() }
            try expectWholeStacks(of: stall, captures: 500)
        }

        @Test("it continues meanwhile: it makes progress between any two captures of a storm")
        func goesOn() throws {
            let stall = Stall(STALL_ALLOCATE)
            defer { stall.finish() }
            for _ in 0..<200 {
                let before = stall.rounds
                _ = try capturer.capture(stall).get()
                waitUntil { stall.rounds != before }
            }
        }

        /// The outermost frames are the same in all captures of one thread, so they show whether a walk failed.
        private func expectWholeStacks(of stall: Stall, captures: Int) throws {
            var quiet = 0
            var kept = 0
            var taken = 0
            for _ in 0..<20 * captures where taken < captures {
                switch capturer.capture(stall) {
                case .failure(let error):
                    #expect([.threadKeptMoving, .notDelivered].contains(error.code))
                    kept += 1
                case .success(let stack):
                    taken += 1
                    quiet += stack.method == .quiet ? 1 : 0
                    let names = names(of: stack)
                    // The C runtime's own start and end code for modules has no unwind tables.
                    let untabled = [
                        "__do_global_dtors_aux", "register_tm_clones", "deregister_tm_clones", "frame_dummy", "_init",
                        "_fini",
                    ]
                    // It also has no name any more if its module was unloaded before it was symbolicated; and if a module may
                    // have replaced another in each of the captures that were tried, the stack ends there.
                    let isInPlugin = names.last == "?" || names.last?.hasPrefix("plugin_") == true
                    let isUntabled = !Set(untabled).isDisjoint(with: names) || isInPlugin
                    if stack.truncation == .noUnwindTable && isUntabled { continue }
                    #expect(stack.isComplete, "\(names) \(String(describing: stack.truncation))")
                    #expect(names.count { $0 == "stall_descend" } == 5, "\(names)")
                }
            }
            print("storm: \(captures) captures, \(quiet) quiet, \(kept) kept moving, \(stall.rounds) rounds")
            #expect(taken == captures)
        }

        @Test("it is named down to the Swift closure that it spins in")
        func swiftClosure() throws {
            let worker = SpinningWorker()
            defer { worker.finish() }
            let stack = try capturer.capture(threadID: worker.identity.threadID, stack: worker.identity.stack).get()
            #expect(stack.method == .signal)
            #expect(stack.isComplete)
            let functions = names(of: stack).map(Demangler.shortName)
            #expect(functions.contains { $0.hasPrefix("closure #1 in SpinningWorker.") }, "\(functions)")
            #expect(functions.contains { $0.hasPrefix("applyTwice") }, "\(functions)")
        }
    }
}

/// The time on the clock that captures use.
private func monotonicNanoseconds() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

/// Waits until a thread has run: a signal that was sent to it before has then arrived.
private func awaitProgress(of thread: Int32) {
    // As pthread_getcpuclockid computes it from a thread id.
    let clock = clockid_t(~thread << 3 | 6)
    func nanoseconds() -> Int {
        var time = timespec()
        unsafe clock_gettime(clock, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
    let end = nanoseconds() + 100_000
    while nanoseconds() < end { sched_yield() }
}
