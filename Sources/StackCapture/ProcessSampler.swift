import CStackCapture
import Glibc
import Synchronization

/// Captures the stacks of any other process's threads: monitored or not, Swift or not, with nothing installed in it.
///
/// A thread that sleeps in the kernel is copied from outside and is not affected. A thread that runs is stopped while its
/// registers and stack are copied, some tens of microseconds; it continues before the copy is unwound. If this process ends in
/// the middle, the kernel lets the target continue.
///
/// Do not use it in a process in which a thread waits for any child (`waitpid(-1)`): that call may consume the notification of
/// a stop.
///
/// A forked child makes its own sampler; this one does nothing there.
public final class ProcessSampler: Sendable {
    /// The process number that the sampler was made for.
    public let processID: Int32
    /// Serialises captures: there is one buffer.
    private let process: Mutex<OpenProcess>
    private let deadline: Duration
    /// A forked child inherits the lock in its state at the fork, and no thread would release it there.
    private let owner = getpid()

    /// Opens the process's files. The process is not affected.
    ///
    /// - Parameter deadline: The longest time that one capture waits for its target and retries. Capturing a thread that gets a
    ///   processor takes under a millisecond; a thread of low priority on a busy machine can wait for seconds.
    /// - Throws: ``CaptureError`` with the reason: no such process, a zombie, a kernel thread, another architecture, or the
    ///   missing permission.
    public convenience init(processID: Int32, deadline: Duration = .milliseconds(20)) throws(CaptureError) {
        try self.init(processID: processID, deadline: deadline, readsThroughFile: false)
    }

    /// - Parameter readsThroughFile: Reads memory as if a sandbox refused `process_vm_readv`.
    init(processID: Int32, deadline: Duration, readsThroughFile: Bool) throws(CaptureError) {
        self.processID = processID
        self.deadline = deadline
        process = Mutex(try OpenProcess(processID: processID, readsThroughFile: readsThroughFile))
    }

    /// The current threads, the process's first one first. That one may have ended before the others: then it has the state
    /// `Z`.
    ///
    /// - Throws: `noSuchProcess` if the process has ended; `systemCallFailed`, for example, if this process has no descriptor left.
    public func threads() throws(CaptureError) -> [ProcessThread] {
        guard getpid() == owner else { throw CaptureError(.forked) }
        return try process.withLock { process throws(CaptureError) in try process.threads() }
    }

    /// Captures the stack of one thread. Any thread may call; callers are served one at a time, the others wait.
    ///
    /// - Parameter threadID: The kernel's thread id; the process's first thread has the process's own number.
    public func capture(threadID: Int32) -> Result<CapturedStack, CaptureError> {
        capture(threadID: threadID, within: deadline)
    }

    /// The same, with a deadline of its own.
    package func capture(threadID: Int32, within deadline: Duration) -> Result<CapturedStack, CaptureError> {
        guard getpid() == owner else { return .failure(CaptureError(.forked)) }
        return process.withLock { $0.capture(threadID, within: deadline) }
    }

    /// Captures the stacks of all threads, one after the other: each shows another moment.
    ///
    /// - Returns: The threads in the order of ``threads()``. A thread that has ended in the meantime is not among them.
    /// - Throws: `noSuchProcess` if the process has ended.
    public func captureAll() throws(CaptureError) -> [ThreadCapture] {
        try captureAll { true }
    }

    /// The same, until the caller ends it.
    ///
    /// - Parameter goesOn: Called before each thread; the remaining threads are skipped once it returns false.
    package func captureAll(while goesOn: @Sendable () -> Bool) throws(CaptureError) -> [ThreadCapture] {
        guard getpid() == owner else { throw CaptureError(.forked) }
        return try process.withLock { process throws(CaptureError) in
            try process.threads().compactMap { thread in
                guard goesOn() else { return nil }
                let result = process.capture(thread.threadID, within: deadline)
                if case .failure(let error) = result, error.code == .threadGone { return nil }
                return ThreadCapture(thread: thread, result: result)
            }
        }
    }

    /// Samples where a thread of the process is. The target is not affected. Nil if there is no such thread.
    package func sighting(ofThread threadID: Int32) -> ThreadSighting? {
        guard getpid() == owner else { return nil }
        return process.withLock { $0.sighting(ofThread: threadID) }
    }

    /// The number of programs that the process has run since the sampler was made, including the first: after an execve(2) the
    /// same address means something else. 0 in a forked child.
    public var programsRun: UInt64 {
        guard getpid() == owner else { return 0 }
        return process.withLock { $0.programsRun }
    }

    /// The effects of the captures on the target so far. None in a forked child.
    public var cost: SamplingCost {
        guard getpid() == owner else { return .zero }
        return process.withLock { $0.cost }
    }
}

/// A thread, and its stack or the reason why there is none.
public struct ThreadCapture: Sendable {
    /// The thread's state just before the capture.
    public var thread: ProcessThread
    /// The result for this thread alone; other threads' captures do not depend on it.
    public var result: Result<CapturedStack, CaptureError>

    /// Creates one from these values, which are not checked.
    public init(thread: ProcessThread, result: Result<CapturedStack, CaptureError>) {
        self.thread = thread
        self.result = result
    }
}

/// The effects of sampling on a process. Quiet captures cost it nothing.
public struct SamplingCost: Sendable, Hashable {
    /// How often one of its threads was stopped.
    public var stops: UInt64
    /// An upper bound of the total time for which its threads were stopped: for each, from the last moment at which it was seen
    /// not yet stopped until it was released.
    public var heldNanoseconds: UInt64
    /// The longest of these times.
    public var longestHeldNanoseconds: UInt64
    /// The additional time that they waited for a processor: before they could stop, which they would also have done unsampled,
    /// and until they continued, as far as that had happened when the stack had been unwound. 0 if the kernel does not count
    /// it.
    public var waitedNanoseconds: UInt64
    /// System calls that a stop would have cut short, and that were restarted instead, with their whole timeout.
    public var callsRestarted: UInt64
    /// Stops that did not happen within the deadline and were given up.
    public var stopsGivenUp: UInt64

    static let zero = SamplingCost(
        stops: 0,
        heldNanoseconds: 0,
        longestHeldNanoseconds: 0,
        waitedNanoseconds: 0,
        callsRestarted: 0,
        stopsGivenUp: 0
    )

    /// Creates a cost from these figures.
    public init(
        stops: UInt64,
        heldNanoseconds: UInt64,
        longestHeldNanoseconds: UInt64,
        waitedNanoseconds: UInt64,
        callsRestarted: UInt64,
        stopsGivenUp: UInt64
    ) {
        self.stops = stops
        self.heldNanoseconds = heldNanoseconds
        self.longestHeldNanoseconds = longestHeldNanoseconds
        self.waitedNanoseconds = waitedNanoseconds
        self.callsRestarted = callsRestarted
        self.stopsGivenUp = stopsGivenUp
    }
}
