import CStackCapture
import Glibc

/// Another process, opened by the C part. Safe: the pointer is passed only to C calls, and freed once.
@safe struct OpenProcess: ~Copyable {
    private let handle: OpaquePointer
    private let processID: Int32
    private let owner = getpid()

    init(processID: Int32, readsThroughFile: Bool) throws(CaptureError) {
        let obstacle = ProcessObstacle(processID: processID)
        if let code = obstacle.beforehand() { throw CaptureError(code) }
        var opened: OpaquePointer?
        let outcome = unsafe stackcap_process_open(processID, readsThroughFile, &opened)
        guard let opened = unsafe opened else {
            throw CaptureError(outcome)?.explained(by: obstacle) ?? CaptureError(.systemCallFailed)
        }
        unsafe handle = opened
        self.processID = processID
    }

    deinit {
        // A forked child does not have the thread that this ends, and may have its lock held forever.
        if getpid() == owner { unsafe stackcap_process_close(handle) }
    }

    func threads() throws(CaptureError) -> [ProcessThread] {
        // Through the open directory: the process's number may belong to another process by now.
        let directory = unsafe "/proc/self/fd/\(stackcap_process_directory(handle))"
        guard let numbers = ProcessThread.numbers(in: directory) else { throw CaptureError(.noSuchProcess) }
        return numbers.map { ProcessThread(threadID: $0, in: directory) }
    }

    func capture(_ threadID: Int32, within deadline: Duration) -> Result<CapturedStack, CaptureError> {
        let end = stackcap_now_ns() &+ deadline.nanoseconds
        var result = attempt(threadID, until: end)
        // The process runs another program now, and the handle has recorded that.
        if case .failure(let error) = result, error.code == .processReplaced {
            result = attempt(threadID, until: end)
        }
        return result.mapError { $0.explained(by: ProcessObstacle(processID: processID)) }
    }

    private func attempt(_ threadID: Int32, until deadline: UInt64) -> Result<CapturedStack, CaptureError> {
        if let error = unsafe CaptureError(stackcap_process_refresh(handle)) { return .failure(error) }
        return take(threadID, until: deadline).completed(before: deadline) { take(threadID, until: deadline) }
    }

    private func take(_ threadID: Int32, until deadline: UInt64) -> Result<UnwoundStack, CaptureError> {
        let attempt = unsafe ProcessAttempt(handle: handle, threadID: threadID, deadline: deadline)
        return unsafe attempt.copy().flatMap { copied in
            unsafe UnwoundStack.unwinding(copied) { unsafe stackcap_process_unwind(handle, $0) }
        }
    }

    func sighting(ofThread threadID: Int32) -> ThreadSighting? {
        var look = stackcap_look()
        guard unsafe stackcap_process_look(handle, threadID, &look).status == STACKCAP_OK else { return nil }
        return ThreadSighting(look)
    }

    var programsRun: UInt64 { unsafe stackcap_process_read_counters(handle).programs }

    var cost: SamplingCost {
        let counters = unsafe stackcap_process_read_counters(handle)
        return SamplingCost(
            stops: counters.stops,
            heldNanoseconds: counters.held_ns,
            longestHeldNanoseconds: counters.longest_held_ns,
            waitedNanoseconds: counters.waited_ns,
            callsRestarted: counters.calls_mended,
            stopsGivenUp: counters.given_up
        )
    }
}

extension CaptureError {
    /// Replaces "not permitted" by the actual reason, and likewise for a process that has ended.
    fileprivate func explained(by obstacle: ProcessObstacle) -> CaptureError {
        switch code {
        case .accessRefused: CaptureError(obstacle.behindRefusal(), underlying: underlying)
        case .threadGone: obstacle.beforehand().map { CaptureError($0) } ?? self
        default: self
        }
    }
}

/// Obtains a consistent copy of a stack in another process: samples the thread's state, copies accordingly, and samples again
/// if it moved.
@unsafe struct ProcessAttempt {
    /// A process to which the caller has exclusive access.
    let handle: OpaquePointer
    let threadID: Int32
    /// On the clock of `stackcap_now_ns`.
    let deadline: UInt64

    /// Samples and copies until a copy is consistent or the deadline has passed.
    func copy() -> Result<Attempt.Copied, CaptureError> {
        var look = stackcap_look()
        var sleeps: UInt64?
        repeat {
            let outcome = unsafe stackcap_process_look(handle, threadID, &look)
            if let error = CaptureError(outcome) { return .failure(error) }
            if look.state != STACKCAP_STATE_RUNNING {
                if let result = unsafe copyBlocked(look) { return result }
                sleeps = nil
            } else if let result = unsafe copyRunning(since: &sleeps) {
                return result
            }
        } while unsafe stackcap_now_ns() < deadline
        // Too few samples in the available time to say that it computes: this machine had no processor for us.
        return .failure(CaptureError(look.state == STACKCAP_STATE_RUNNING ? .notStopped : .threadKeptMoving))
    }

    /// A thread that a signal has stopped outside of a system call shows its registers, if we may read them, and stays stopped.
    /// One stopped inside a call would not.
    ///
    /// - Returns: Nil if the thread has run in the meantime.
    private func copyBlocked(_ look: stackcap_look) -> Result<Attempt.Copied, CaptureError>? {
        if look.state == STACKCAP_STATE_HALTED,
            unsafe stackcap_process_copy_halted(handle, threadID, deadline).status == STACKCAP_OK
        {
            return .success(Attempt.Copied(method: .stopped))
        }
        let outcome = unsafe withUnsafePointer(to: look) { look in
            unsafe stackcap_process_copy_blocked(handle, threadID, look)
        }
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Attempt.Copied(method: .quiet, look: look))
    }

    /// Stops the thread only if it has been running for a while: a thread that runs briefly between two sleeps might be in the
    /// next sleep when the stop arrives, and a stop ends some system calls.
    ///
    /// - Parameter sleeps: How often it had gone to sleep when it was first seen running.
    /// - Returns: Nil if the thread sleeps, or may be about to.
    private func copyRunning(since sleeps: inout UInt64?) -> Result<Attempt.Copied, CaptureError>? {
        var now: UInt64 = 0
        let read = unsafe stackcap_process_count_sleeps(handle, threadID, &now)
        if let error = CaptureError(read) { return .failure(error) }
        guard sleeps == now else {
            sleeps = now
            var time = timespec(tv_sec: 0, tv_nsec: 50_000)
            unsafe nanosleep(&time, nil)
            return nil
        }
        let outcome = unsafe stackcap_process_copy_stopped(handle, threadID, deadline)
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Attempt.Copied(method: .stopped))
    }
}
