import CStackCapture
import Glibc
import TestSupport
import Testing

extension ProcessTests {
    @Suite("A process that the kernel lets nobody stop")
    struct HeldTracerTests {
        /// A tracer ends if the thread to which it has attached does not run. The kernel releases that thread a moment later.
        @Test("each attempt to stop a resting thread is given up, and none is refused because of the one before")
        func tracersInARow() throws {
            let target = try TargetProcess("threads", "1")
            var opened: OpaquePointer?
            #expect(unsafe stackcap_process_open(target.processID, false, &opened).status == STACKCAP_OK)
            let process = try unsafe #require(opened)
            defer { unsafe stackcap_process_close(process) }
            target.wait { $0.isInCall }
            var statuses: [UInt32: Int] = [:]
            for _ in 0..<500 {
                let end = stackcap_now_ns() + 60_000_000_000
                let outcome = unsafe stackcap_process_copy_stopped(process, target.processID, end)
                statuses[outcome.status.rawValue, default: 0] += 1
            }
            #expect(statuses == [STACKCAP_MOVED.rawValue: 500])
        }

        /// An execve(2) that waits for another thread's end keeps PTRACE_SEIZE waiting.
        @Test("a capture is given up after its deadline, and so are later ones; closing does not wait either")
        func execve() throws {
            let target = try TargetProcess("held")
            let holder = try #require(Int32(target.announced))
            var opened: OpaquePointer?
            #expect(unsafe stackcap_process_open(target.processID, false, &opened).status == STACKCAP_OK)
            let process = try unsafe #require(opened)
            try target.proceed()
            target.wait { $0.state == "D" }
            for _ in 0..<3 {
                let outcome = unsafe stackcap_process_copy_stopped(process, target.processID, stackcap_now_ns())
                #expect(outcome.status == STACKCAP_NOT_STOPPED)
            }
            #expect(unsafe stackcap_process_refresh(process).status == STACKCAP_NOT_STOPPED)
            unsafe stackcap_process_close(process)
            // None of these waited for the end of what blocks it.
            #expect(target.state == "D")
            #expect(kill(holder, SIGKILL) == 0)
            #expect(target.rest() == "")
        }
    }
}
