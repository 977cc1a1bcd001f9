import CStalls
import Glibc
@testable import StackCapture
import TestSupport
import Testing

extension CaptureTests {
    @Suite("A thread blocked in a system call")
    struct BlockedThreadTests {
        let capturer: StackCapturer

        init() throws {
            capturer = try StackCapturer(deadline: .seconds(5))
        }

        struct Wait: CustomTestStringConvertible {
            var kind: stall_kind
            var function: String
            var systemCall: String
            var testDescription: String { function }
        }

        static let waits = [
            Wait(kind: STALL_NANOSLEEP, function: "stall_in_nanosleep", systemCall: "clock_nanosleep"),
            Wait(kind: STALL_POLL, function: "stall_in_poll", systemCall: "poll"),
            Wait(kind: STALL_EPOLL, function: "stall_in_epoll", systemCall: "epoll_wait"),
            Wait(kind: STALL_SEMAPHORE, function: "stall_in_semaphore", systemCall: "futex"),
            Wait(kind: STALL_RECEIVE, function: "stall_in_receive", systemCall: "recvfrom"),
            Wait(kind: STALL_READ, function: "stall_in_read", systemCall: "read"),
            Wait(kind: STALL_LOCK, function: "stall_in_lock", systemCall: "futex"),
        ]

        @Test("it is captured quietly, with its call and every frame", arguments: waits)
        func captured(_ wait: Wait) throws {
            let stack = try captureInTime(wait)
            #expect(stack.systemCall?.name == wait.systemCall)
            #expect(stack.systemCall?.arguments.count == 6)
            #expect(stack.isComplete)
            #expect(stack.cost.heldNanoseconds == 0)
            #expect(stack.cost.bytesCopied > 0)
            let names = names(of: stack)
            let expected = [wait.function, "stall_at"] + Array(repeating: "stall_descend", count: 8) + ["run"]
            #expect(names.drop { $0 != wait.function }.starts(with: expected), "\(names)")
        }

        /// If the wait may have ended before it was captured, because this thread was late, a longer one is captured.
        private func captureInTime(_ wait: Wait) throws -> CapturedStack {
            var time = Duration.milliseconds(200)
            while true {
                let began = ContinuousClock.now
                let stall = Stall(wait.kind, depth: 7, for: time)
                defer { stall.finish() }
                let result = Result<CapturedStack, any Error> { try capturer.captureBlocked(stall) }
                if ContinuousClock.now - began < time || time > .seconds(20) { return try result.get() }
                time *= 4
            }
        }

        @Test(
            "in a function without an unwind table or a frame pointer it shows that function's caller",
            arguments: WaitingWorker.Wait.allCases
        )
        func untabled(_ wait: WaitingWorker.Wait) throws {
            let worker = WaitingWorker(wait)
            defer { worker.finish() }
            var stack = try capturer.capture(threadID: worker.identity.threadID, stack: worker.identity.stack).get()
            while stack.systemCall?.name != "futex" {
                stack = try capturer.capture(threadID: worker.identity.threadID, stack: worker.identity.stack).get()
            }
            let functions = names(of: stack)
            let at = try #require(functions.firstIndex { $0.contains("waitLongEnough") }, "\(functions)")
            #expect(functions[at - 1].hasPrefix("$s8Dispatch"), "\(functions)")
            #if arch(x86_64)
                #expect(stack.frames[at].found == .instructions, "\(stack.frames)")
            #endif
            #expect(stack.isComplete)
        }

        @Test(
            "it gets no signal: a timed wait captured a hundred times lasts its full time",
            .repeatedWhenLate(by: .milliseconds(50)),
            arguments: waits.prefix(5)
        )
        func undisturbed(_ wait: Wait) throws {
            let sent = capturer.counters.signalsSent
            let time = Duration.seconds(2)
            // The wait is not over before that, whenever this thread has gone on.
            let deadline = ContinuousClock.now + time
            let stall = Stall(wait.kind, for: time)
            // A capture before the call could treat the thread as running, and signal it as it enters its call.
            while StackCapturer.sighting(ofThread: stall.threadID)?.systemCall?.name != wait.systemCall {
                try #require(ContinuousClock.now < deadline)
                sched_yield()
            }
            // While it is certain to be there still.
            var (taken, quiet) = (0, 0)
            while taken < 100, ContinuousClock.now < deadline - time / 2 {
                let result = capturer.capture(stall)
                // If this thread has paused so long that the wait may be over, the machine was late.
                LatenessWitness.note(ContinuousClock.now - (deadline - .milliseconds(100)))
                let stack = try result.get()
                taken += 1
                quiet += stack.method == .quiet && stack.systemCall?.name == wait.systemCall ? 1 : 0
            }
            #expect(capturer.counters.signalsSent == sent)
            #expect(quiet == taken && taken > 0)
            let end = stall.finish()
            #expect(Duration.nanoseconds(end.lasted_ns) >= time - .milliseconds(1))
            let timeouts: [stall_kind: Int32] = [STALL_SEMAPHORE: ETIMEDOUT, STALL_RECEIVE: EAGAIN]
            let error = timeouts[wait.kind]
            #expect(end.result == (error == nil ? 0 : -1))
            if let error { #expect(end.error == error) }
        }

        @Test("it is captured while it synchronises a file, waiting or running")
        func fsync() throws {
            let stall = Stall(STALL_FSYNC)
            defer { stall.finish() }
            var captured = 0
            for _ in 0..<4000 where captured < 100 {
                switch capturer.capture(stall) {
                case .failure(let error): #expect([.threadKeptMoving, .notDelivered].contains(error.code))
                case .success(let stack):
                    captured += 1
                    #expect(names(of: stack).contains("stall_in_fsync"))
                }
            }
            #expect(captured == 100)
        }

        @Test("it is captured and named at once while it holds the loader's lock")
        func holdsLoader() throws {
            let stall = Stall(STALL_HOLD_LOADER)
            defer { stall.finish() }
            let names = try names(of: capturer.captureBlocked(stall))
            #expect(names.contains("hold_loader"))
            #expect(names.contains("dl_iterate_phdr"))
        }

        @Test("it is captured through /proc/self/mem if process_vm_readv is refused", arguments: [3, 20_000])
        func throughFile(depth: Int) throws {
            let stall = Stall(STALL_READ, depth: depth)
            defer { stall.finish() }
            let direct = try capturer.captureBlocked(stall)
            capturer.invalidate()
            let capturer = try StackCapturer(signal: SIGPROF, deadline: .seconds(5), readsThroughFile: true)
            let stack = try capturer.captureBlocked(stall)
            #expect(stack.isComplete)
            #expect(names(of: stack).contains("stall_in_read"))
            #expect(stack.frames == direct.frames)
            #expect(stack.leftOut == direct.leftOut)
        }

        @Test("in a signal handler it shows the code that the signal interrupted")
        func inHandler() throws {
            let stall = Stall(STALL_HANDLER, depth: 3)
            defer { stall.finish() }
            let stack = try capturer.captureBlocked(stall)
            let names = names(of: stack)
            #expect(stack.isComplete)
            #expect(names.contains("stall_read_in_handler"))
            #expect(names.contains("stall_in_handler"))
            #expect(names.count { $0 == "stall_descend" } == 4, "\(names)")
        }

        #if arch(x86_64)
            @Test("in a signal handler that returns by code without an unwind table it shows the same")
            func inBareHandler() throws {
                let stall = Stall(STALL_BARE_HANDLER, depth: 3)
                defer { stall.finish() }
                let stack = try capturer.captureBlocked(stall)
                let names = names(of: stack)
                #expect(stack.isComplete)
                let handler = try #require(names.firstIndex(of: "stall_read_in_handler"))
                #expect(names[handler + 1] == "?" && names[handler + 3] == "stall_in_bare_handler", "\(names)")
                #expect(names.count { $0 == "stall_descend" } == 4, "\(names)")
                #expect(stack.frames[handler + 2].found == .register, "where the signal came: in syscall(2)")
                let outer = stack.frames[(handler + 1)...]
                #expect(outer.allSatisfy { [.register, .unwindTable].contains($0.found) }, "\(stack.frames)")
            }
        #endif

        @Test("in the handler of a trap it shows the function that trapped, and not the one before it")
        func inTrap() throws {
            let stall = Stall(STALL_TRAP, depth: 3)
            defer { stall.finish() }
            let stack = try capturer.captureBlocked(stall)
            let names = names(of: stack)
            #expect(stack.isComplete)
            #expect(names.contains("stall_read_in_trap"))
            #expect(names.contains("stall_traps") && !names.contains("stall_before_trap"), "\(names)")
            let trapped = stack.frames.enumerated().filter { names[$0.offset] == "stall_traps" }
            #expect(trapped.map(\.element.found) == [.register], "it is no return address")
        }

        /// It sleeps at the same place each time, so that only what the kernel counts shows that it ran in between. The copy takes about
        /// as long as the way from one sleep to the next: without that check, one stack in a hundred was of both.
        @Test("woken while its stack is copied, it is never shown with frames of before and of after")
        func swinging() throws {
            let stall = Stall(STALL_QUICK_SWING, depth: 0)
            defer { stall.finish() }
            // A slow machine sees fewer.
            let limit = ContinuousClock.now + .seconds(60)
            var quiet = 0
            while quiet < 2000, quiet == 0 || ContinuousClock.now < limit {
                guard case .success(let stack) = capturer.capture(stall), stack.method == .quiet else { continue }
                quiet += 1
                let names = Set(names(of: stack))
                #expect(!names.isSuperset(of: ["stall_swing_left", "stall_swing_right"]))
            }
        }

        /// The thread publishes its current depth; a capture during which that word did not change must show exactly that
        /// depth. The other frames of a stack depend only on the call: the first capture of each kind gives their number.
        @Test(
            "woken all the time, it is never shown at a depth where it was not",
            .repeatedWhenLate(by: .milliseconds(10))
        )
        func dozing() throws {
            let sent = capturer.counters.signalsSent
            let stall = Stall(STALL_DOZE)
            // A slow machine verifies fewer.
            let limit = ContinuousClock.now + .seconds(120)
            var verified = 0
            var wrong = 0
            var besides: [Bool: Int] = [:]
            var failures: [CaptureError.Code: Int] = [:]
            while verified < 6000 && ContinuousClock.now < limit {
                let before = stall.dozerState
                let result = capturer.capture(stall)
                let isSteady = stall.dozerState == before
                switch result {
                case .failure(let error): failures[error.code, default: 0] += 1
                // Not in a call: on its way down or up it waits for a page, at any depth.
                case .success(let stack) where isSteady && stack.method == .quiet && stack.systemCall != nil:
                    let rest = stack.frames.count - Int(stall_dozer_depth(before))
                    let expected = besides[stall_dozer_polls(before), default: rest]
                    besides[stall_dozer_polls(before)] = expected
                    verified += 1
                    wrong += stack.isComplete && rest == expected ? 0 : 1
                case .success: break
                }
            }
            let end = stall.finish()
            print("dozing: \(verified) verified, \(wrong) wrong, \(failures.map { "\($0.key.name): \($0.value)" }),")
            print("  \(end.rounds) sleeps, \(end.cut_short) cut short, \(capturer.counters)")
            #expect(verified > 0)
            #expect(wrong == 0)
            #expect(failures.keys.allSatisfy { [.threadKeptMoving, .notDelivered].contains($0) })
            // The race with a thread that falls asleep: how often it is lost depends on the machine.
            #expect(end.cut_short <= capturer.counters.signalsSent - sent, "nothing but a signal cuts a sleep short")
        }
    }
}
