import CStackCapture
import Glibc

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
