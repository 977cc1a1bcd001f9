import CStalls
import Glibc
import StackCapture
import TestSupport
import Testing

extension CaptureTests {
    @Suite("A capture that fails says why and harms nothing")
    struct FailureTests {
        let capturer: StackCapturer

        init() throws {
            capturer = try StackCapturer(deadline: .seconds(5))
        }

        private func failure(_ result: Result<CapturedStack, CaptureError>) -> CaptureError.Code? {
            if case .failure(let error) = result { error.code } else { nil }
        }

        @Test("no such thread")
        func noThread() {
            #expect(failure(capturer.capture(threadID: Int32.max - 1, stack: 0..<4096)) == .threadGone)
        }

        @Test("a thread of another process")
        func foreignThread() {
            #expect(failure(capturer.capture(threadID: getppid(), stack: 0..<4096)) == .threadGone)
        }

        @Test("the calling thread itself")
        func ownThread() throws {
            let own = try #require(ThreadIdentity.current())
            #expect(failure(capturer.capture(threadID: own.threadID, stack: own.stack)) == .ownThread)
            #expect(failure(capturer.capture(threadID: own.threadID)) == .ownThread)
        }

        @Test("a thread that exits while it is captured")
        func exiting() {
            var codes: [CaptureError.Code?: Int] = [:]
            for _ in 0..<500 {
                let stall = Stall()
                codes[failure(capturer.capture(stall)), default: 0] += 1
                stall.finish()
            }
            print("exiting: \(codes.map { "\($0.key?.name ?? "captured"): \($0.value)" })")
            // The C library blocks all signals of a thread that is about to end.
            let expected: Set<CaptureError.Code?> = [
                nil, .threadGone, .stackOutOfBounds, .notDelivered, .memoryUnreadable, .signalBlocked,
                .threadKeptMoving,
            ]
            #expect(Set(codes.keys).isSubset(of: expected))
        }

        @Test("a thread that has the signal blocked gets no signal")
        func masked() throws {
            capturer.invalidate()
            let capturer = try StackCapturer()  // with the usual, short deadline
            let sent = capturer.counters.signalsSent
            let stall = Stall(STALL_SPIN_MASKED)
            #expect(failure(capturer.capture(stall)) == .signalBlocked)
            #expect(failure(capturer.capture(stall)) == .signalBlocked)
            stall.finish()  // unblocks
            #expect(capturer.counters.signalsSent == sent)
            capturer.invalidate()
            let patient = try StackCapturer(deadline: .seconds(60))
            let other = Stall(STALL_SPIN)
            defer { other.finish() }
            #expect(try patient.capture(other).get().isComplete)
        }

        @Test(
            "bounds of another stack: its own is captured",
            arguments: [STALL_SPIN, STALL_READ]
        )
        func outside(kind: stall_kind) throws {
            let stall = Stall(kind)
            let wrong = [0..<UInt(4096), stall.stack.upperBound..<stall.stack.upperBound + 4096, 4096..<4096]
            let captures = wrong.map { capturer.capture(threadID: stall.threadID, stack: $0) }
            // Nothing can be read in the first bounds: a call of the handler's has failed.
            #expect(stall.finish().error == 0, "the thread's errno has changed")
            for capture in captures {
                let stack = try capture.get()
                #expect(names(of: stack).contains("stall_descend"))
                #expect(stack.isComplete)
            }
        }

        @Test("bounds that reach into unmapped memory lose only that part", arguments: [STALL_SPIN, STALL_READ])
        func beyondTheStack(kind: stall_kind) throws {
            let stall = Stall(kind)
            defer { stall.finish() }
            let stale = UInt(4096)..<(UInt(1) << 47) - 4096
            for _ in 0..<50 {
                let stack = try capturer.capture(threadID: stall.threadID, stack: stale).get()
                #expect(names(of: stack).contains("stall_descend"))
            }
        }

        #if arch(x86_64)
            /// The first thread's stack is mapped only as far as it has been used.
            @Test("where nothing is mapped below the stack pointer, only the memory below it is missing")
            func edge() throws {
                let stall = Stall(STALL_EDGE)
                defer { stall.finish() }
                let whole = UInt(4096)..<(UInt(1) << 47) - 4096
                // At first it may still be running, with all signals blocked, or wait for the lock of the process's mappings.
                waitUntil { StackCapturer.sighting(ofThread: stall.threadID)?.systemCall?.name == stall.systemCall }
                let stack = try capturer.capture(threadID: stall.threadID, stack: whole).get()
                #expect(stack.method == .quiet)
                #expect(names(of: stack).first == "stall_at_edge")
            }
        #endif

        @Test("every message has its own text and says what to do")
        func messages() {
            let error = CaptureError(.memoryUnreadable, underlying: EPERM)
            #expect(error.description.hasPrefix("memory_unreadable: "))
            #expect(error.description.hasSuffix("(errno 1)"))
            #expect(CaptureError(.invalidated).description.contains("make a new one"))
            #expect(CaptureError(.stateUnreadable, underlying: ENOENT).description.contains("mount /proc"))
            let unreadable = CaptureError(.stateUnreadable, underlying: EACCES)
            #expect(unreadable.description.contains("call prctl(PR_SET_DUMPABLE, 1)"))
            #expect(!unreadable.sentence.contains("mount"))
            #expect(unreadable.sentence.contains("changed its user") && unreadable.sentence.contains("(setcap)"))
        }
    }
}
