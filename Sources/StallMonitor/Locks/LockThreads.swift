import Glibc
import StackCapture
import StallDiagnosis

/// The threads of one process, and its memory, as far as the search for a lock's owner reads them.
struct LockThreads {
    let memory: LockMemory
    let capture: (Int32) -> Result<CapturedStack, CaptureError>
    let sighting: (Int32) -> ThreadSighting?
    let evidence: (Int32) -> ThreadEvidence?
    /// Where a thread waits, by its call and its state.
    let site: (SystemCall, Character?) -> WaitSite

    /// This process.
    ///
    /// - Parameter words: reads memory. Replaced in tests of memory that changes meanwhile.
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

    /// Another process. Its running threads are stopped for a moment while their stacks are copied.
    init(of process: OutsideProcess) {
        let observed = process.observed
        // The numbers in its memory are those of its own pid namespace. In another one than ours they mean nothing here.
        let isInOurNamespace = Self.namespace(of: .own) == Self.namespace(of: observed)
        var memory = LockMemory(
            words: { address, count in process.read(address, count * 4).map(Self.words) },
            hasThread: { unsafe isInOurNamespace && access("\(observed.directory)/task/\($0)", F_OK) == 0 }
        )
        // What it leads to counts only if it is the number of a thread.
        memory.threadNumberOffset = GlibcThread.numberOffset
        self.memory = memory
        capture = { process.sampler.capture(threadID: $0) }
        sighting = { process.sampler.sighting(ofThread: $0) }
        evidence = { .read(threadID: $0, of: observed) }
        site = { call, state in WaitSite(call, state: state, of: observed) { process.read($0, $1) } }
    }

    private static func namespace(of process: ObservedProcess) -> ino_t? {
        var status = stat()
        return unsafe stat("\(process.livingDirectory)/ns/pid", &status) == 0 ? status.st_ino : nil
    }

    private static func words(_ bytes: [UInt8]) -> [UInt32] {
        stride(from: 0, to: bytes.count - 3, by: 4).map { index in
            (0..<4).reduce(0) { $0 | UInt32(bytes[index + $1]) << (UInt32($1) * 8) }
        }
    }
}
