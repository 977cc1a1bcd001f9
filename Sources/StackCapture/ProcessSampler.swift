import CStackCapture
import Synchronization

/// Takes the stacks of any other process's threads: monitored or not, Swift or not, with nothing installed in it.
///
/// A thread that sleeps in the kernel is copied from outside and notices nothing. A thread that runs is stopped for the time that it
/// takes to copy its registers and stack, some tens of microseconds, and unwound after it has been let go. If this process ends in the middle, the
/// kernel lets the target go on.
///
/// Not for a process in which some thread waits for any child at all (`waitpid(-1)`): it may take away the notice of a stop.
public final class ProcessSampler: Sendable {
    /// The number that the sampler was made for.
    public let processID: Int32
    /// Serialises captures: there is one buffer.
    private let process: Mutex<OpenProcess>
    private let deadline: Duration

    /// Opens the process's files. It does not notice.
    ///
    /// - Parameter deadline: the longest that one capture waits for its target, and tries again. That of a thread that gets a processor takes
    ///   under a millisecond; one of low priority on a busy machine can wait for seconds.
    /// - Throws: ``CaptureError`` with what is in the way: no such process, a zombie, a kernel thread, another architecture, or which
    ///   permission is missing.
    public convenience init(processID: Int32, deadline: Duration = .milliseconds(20)) throws(CaptureError) {
        try self.init(processID: processID, deadline: deadline, readsThroughFile: false)
    }

    /// - Parameter readsThroughFile: as where a sandbox refuses `process_vm_readv`.
    init(processID: Int32, deadline: Duration, readsThroughFile: Bool) throws(CaptureError) {
        self.processID = processID
        self.deadline = deadline
        process = Mutex(try OpenProcess(processID: processID, readsThroughFile: readsThroughFile))
    }

    /// The threads there are now, the process's first one first. That one may have ended before the others: then it has the state `Z`.
    ///
    /// - Throws: `noSuchProcess` if it has ended.
    public func threads() throws(CaptureError) -> [ProcessThread] {
        try process.withLock { process throws(CaptureError) in try process.threads() }
    }

    /// Takes the stack of one thread. Any thread may call; one caller at a time, others wait.
    ///
    /// - Parameter threadID: the kernel's number; the process's first thread has the process's own.
    public func capture(threadID: Int32) -> Result<CapturedStack, CaptureError> {
        process.withLock { $0.capture(threadID, within: deadline) }
    }

    /// Takes the stacks of all threads, one after the other: each shows another moment.
    ///
    /// - Returns: the threads in the order of ``threads()``. One that has ended meanwhile is not among them.
    /// - Throws: `noSuchProcess` if the process has ended.
    public func captureAll() throws(CaptureError) -> [ThreadCapture] {
        try captureAll { true }
    }

    /// The same, for as long as it is wanted.
    ///
    /// - Parameter goesOn: asked before each thread; the rest is left out once it is false.
    package func captureAll(while goesOn: @Sendable () -> Bool) throws(CaptureError) -> [ThreadCapture] {
        try process.withLock { process throws(CaptureError) in
            try process.threads().compactMap { thread in
                guard goesOn() else { return nil }
                let result = process.capture(thread.threadID, within: deadline)
                if case .failure(let error) = result, error.code == .threadGone { return nil }
                return ThreadCapture(thread: thread, result: result)
            }
        }
    }

    /// Looks where a thread of the process is. The target does not notice. Nil when there is no such thread.
    package func sighting(ofThread threadID: Int32) -> ThreadSighting? {
        process.withLock { $0.sighting(ofThread: threadID) }
    }

    /// Programs that the process has run since, the first one included: after an execve(2) the same address is something else.
    public var programsRun: UInt64 {
        process.withLock { $0.programsRun }
    }

    /// What the target has noticed of the captures so far.
    public var cost: SamplingCost {
        process.withLock { $0.cost }
    }
}

/// A thread, and its stack or the reason why there is none.
public struct ThreadCapture: Sendable {
    /// As it was just before the capture.
    public var thread: ProcessThread
    /// Of this thread alone; other threads' captures do not depend on it.
    public var result: Result<CapturedStack, CaptureError>

    /// Nothing is checked.
    public init(thread: ProcessThread, result: Result<CapturedStack, CaptureError>) {
        self.thread = thread
        self.result = result
    }
}

/// What a process has noticed of being sampled. Quiet captures cost it nothing.
public struct SamplingCost: Sendable, Hashable {
    /// Times that one of its threads was stopped.
    public var stops: UInt64
    /// How long its threads stood at most, together: from the last moment at which each was seen not to stand yet until it was let go.
    public var heldNanoseconds: UInt64
    /// The longest of these times.
    public var longestHeldNanoseconds: UInt64
    /// How long they waited for a processor besides: before they could stop, which they would have done unsampled, and until they ran on,
    /// as far as that was when the stack had been unwound. 0 where the kernel does not count it.
    public var waitedNanoseconds: UInt64
    /// System calls that a stop would have cut short, and that were made to start again instead, with their whole timeout.
    public var callsRestarted: UInt64
    /// Stops that did not come within the deadline, and were given up.
    public var stopsGivenUp: UInt64

    /// Nothing is defaulted.
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
