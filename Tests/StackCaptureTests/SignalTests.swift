import CStackCapture
import CStalls
import Glibc
import StackCapture
import Testing

extension CaptureTests {
    @Suite("The capture signal")
    struct SignalTests {
        private func code(_ body: () throws -> some Any) -> CaptureError.Code? {
            do {
                _ = try body()
                return nil
            } catch {
                return (error as? CaptureError)?.code
            }
        }

        /// Why a capture fails. If this thread had to wait for a CPU until the deadline was over, it captures again.
        private func codeInTime(_ capturer: StackCapturer, _ stall: Stall) -> CaptureError.Code? {
            var found: CaptureError.Code?
            for _ in 0..<100 {
                found = code { try capturer.capture(stall).get() }
                if found != .notDelivered { break }
            }
            return found
        }

        @Test("it has one capturer at a time; another signal has its own")
        func oneAtATime() throws {
            let first = try StackCapturer(deadline: .seconds(60))
            #expect(code { try StackCapturer(deadline: .seconds(60)) } == .signalInUse)
            let other = try StackCapturer(signal: SIGUSR2, deadline: .seconds(60))
            let stall = Stall(STALL_SPIN)
            defer { stall.finish() }
            #expect(try first.capture(stall).get().isComplete)
            #expect(try other.capture(stall).get().isComplete)
        }

        @Test("it must be a signal that can be handled", arguments: [0, -1, 65, 1000, SIGKILL, SIGSTOP])
        func unusable(signal: Int32) {
            #expect(code { try StackCapturer(signal: signal) } == .unusableSignal)
        }

        @Test("it is passed on to the application's handler when the application sends it")
        func passedOn() throws {
            stall_count_signals(SIGPROF)
            defer { stall_reset_signal(SIGPROF) }
            let capturer = try StackCapturer(deadline: .seconds(60))
            let stall = Stall(STALL_SPIN)
            defer { stall.finish() }
            let counted = stall_counted_signals()
            let passedOn = capturer.counters.signalsPassedOn
            for round in 1...20 {
                stall_send_own(stall.threadID, SIGPROF)
                while stall_counted_signals() < counted + UInt64(round) {}
                #expect(try capturer.capture(stall).get().isComplete)
            }
            #expect(stall_counted_signals() == counted + 20, "captures are not the application's business")
            #expect(capturer.counters.signalsPassedOn == passedOn + 20)
            capturer.invalidate()
            #expect(stall_installed(SIGPROF) == STALL_HANDLER_COUNTS)
        }

        @Test("after invalidate it is as before, and captures say why they fail")
        func invalidated() throws {
            let capturer = try StackCapturer(deadline: .seconds(60))
            #expect(stall_installed(SIGPROF) == STALL_HANDLER_OTHER)
            capturer.invalidate()
            capturer.invalidate()
            #expect(stall_installed(SIGPROF) == STALL_HANDLER_DEFAULT)
            let stall = Stall(STALL_SPIN)
            defer { stall.finish() }
            #expect(code { try capturer.capture(stall).get() } == .invalidated)
            let next = try StackCapturer(deadline: .seconds(60))
            #expect(try next.capture(stall).get().isComplete)
        }

        @Test("it is released with the last reference")
        func released() throws {
            do { _ = try StackCapturer(deadline: .seconds(60)) }
            #expect(stall_installed(SIGPROF) == STALL_HANDLER_DEFAULT)
        }

        /// SIGPROF's default action ends the process; an error here would end the test process. A capturer sends nothing to a
        /// thread that has the signal blocked, so this calls what a capturer calls after its samples.
        @Test("if still pending when the default handler returns, it is discarded")
        func pendingAtTheEnd() throws {
            var opened: OpaquePointer?
            #expect(unsafe stackcap_open(SIGPROF, false, &opened).status == STACKCAP_OK)
            let session = try unsafe #require(opened)
            let before = unsafe stackcap_read_counters(session).sent
            let stall = Stall(STALL_SPIN_MASKED)
            let (low, high) = (UInt64(stall.stack.lowerBound), UInt64(stall.stack.upperBound))
            var seen = stackcap_progress()
            var outcome = stackcap_outcome()
            repeat {
                outcome = unsafe stackcap_copy_running(session, stall.threadID, low, high, &seen, 0, false)
            } while outcome.status == STACKCAP_MOVED
            let sent = unsafe stackcap_read_counters(session).sent
            unsafe stackcap_close(session)
            #expect(outcome.status == STACKCAP_NOT_DELIVERED && sent == before + 1)
            #expect(stall_installed(SIGPROF) == STALL_HANDLER_DEFAULT)
            stall.finish()  // unblocks
        }

        @Test("if the application has taken it over, it is neither sent nor restored")
        func takenOver() throws {
            let capturer = try StackCapturer(signal: SIGUSR1)
            let stall = Stall(STALL_SPIN)
            defer { stall.finish() }
            let blocked = Stall(STALL_READ)
            defer { blocked.finish() }
            let counted = stall_counted_signals()
            stall_count_signals(SIGUSR1)
            defer { stall_reset_signal(SIGUSR1) }
            #expect(codeInTime(capturer, stall) == .signalInUse)
            #expect(try capturer.captureBlocked(blocked).isComplete, "a quiet capture needs no signal")
            capturer.invalidate()
            #expect(stall_installed(SIGUSR1) == STALL_HANDLER_COUNTS)
            #expect(stall_counted_signals() == counted)
        }

        /// A signal of ours would end the process here, because that is its default action.
        @Test("if the application ignores it or resets it after our start, that is reported and it is never sent")
        func takenAway() throws {
            for handler in [SIG_IGN, SIG_DFL] {
                let capturer = try StackCapturer(signal: SIGUSR2)
                let stall = Stall(STALL_SPIN)
                defer { stall.finish() }
                let blocked = Stall(STALL_READ)
                defer { blocked.finish() }
                signal(SIGUSR2, handler)
                for _ in 0..<20 { #expect(codeInTime(capturer, stall) == .signalInUse) }
                #expect(try capturer.captureBlocked(blocked).isComplete)
                capturer.invalidate()
                let found = stall_installed(SIGUSR2)
                #expect(found != STALL_HANDLER_OTHER && found != STALL_HANDLER_COUNTS)
                stall_reset_signal(SIGUSR2)
            }
        }

        @Test("it leaves C++ exceptions to libgcc's unwinder")
        func exceptions() throws {
            let file = try unsafe #require(stall_file_of("_Unwind_RaiseException"))
            #expect(unsafe String(cString: file).contains("libgcc_s"))
        }
    }
}
