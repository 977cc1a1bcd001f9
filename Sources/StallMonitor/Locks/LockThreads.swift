import Glibc
import StackCapture
import StallDiagnosis

/// The threads of one process, and its memory, as needed to search for a lock's owner.
struct LockThreads {
    let memory: LockMemory
    let capture: (Int32) -> Result<CapturedStack, CaptureError>
    let sighting: (Int32) -> ThreadSighting?
    let evidence: (Int32) -> ThreadEvidence?
    /// Where a thread waits, by its call and its state.
    let site: (SystemCall, Character?) -> WaitSite

    /// Reads this process.
    ///
    /// - Parameter words: Reads memory. Tests replace it by memory that changes meanwhile.
    init(capturer: StackCapturer, words: ((_ address: UInt, _ count: Int) -> [UInt32]?)? = nil) {
        var memory = LockMemory(
            words: words ?? { capturer.words(at: $0, count: $1) },
            hasThread: { unsafe access("/proc/self/task/\($0)", F_OK) == 0 }
        )
        memory.threadNumberOffset = GlibcThread.numberOffset(
            ofSelf: UInt(pthread_self()),
            StackCapturer.callingThread,
            memory
        )
        self.memory = memory
        capture = { capturer.capture(threadID: $0) }
        sighting = { StackCapturer.sighting(ofThread: $0) }
        evidence = { .read(threadID: $0) }
        site = { call, state in WaitSite(call, state: state) { capturer.readMemory(at: $0, count: $1) } }
    }
}
