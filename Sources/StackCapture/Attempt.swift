import CStackCapture
import Glibc

/// The way to a consistent copy of one thread's stack: look what it does, copy it accordingly, and look again if it moved.
@unsafe struct Attempt {
    /// A session of which the caller has exclusive use.
    let handle: OpaquePointer
    let signal: Int32
    let target: Target
    /// On `stackcap_now_ns`'s clock.
    let deadline: UInt64

    /// What the copy in the session's buffer shows.
    struct Copied {
        var method: CapturedStack.Method
        /// Of the thread's last look at rest. Unset for a running one.
        var look: stackcap_look?
    }

    /// Looks and copies until a copy holds or the time is up. Allocates nothing.
    func copy() -> Result<Copied, CaptureError> {
        var look = stackcap_look()
        var sleepsSeen: UInt64?
        repeat {
            let outcome = unsafe stackcap_look_at(target.threadID, &look)
            if let error = CaptureError(outcome) { return .failure(error) }
            if look.state != STACKCAP_STATE_RUNNING {
                if let result = unsafe copyBlocked(look) { return result }
            } else if let result = unsafe copyRunning(&sleepsSeen) {
                return result
            }
        } while unsafe stackcap_now_ns() < deadline
        return .failure(CaptureError(.threadKeptMoving))
    }

    /// - Returns: nil if the thread ran meanwhile.
    private func copyBlocked(_ look: stackcap_look) -> Result<Copied, CaptureError>? {
        let outcome = unsafe withUnsafePointer(to: look) { look in
            unsafe stackcap_copy_blocked(handle, target.threadID, target.low, target.high, look)
        }
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Copied(method: .quiet, look: look))
    }

    /// Signals the thread only if it is computing: seen running twice, without sleep in between. A thread that merely comes by
    /// between two sleeps would too often be in the next one when the signal arrives, and the signal would cut that short.
    ///
    /// - Returns: nil if the thread sleeps, or may be about to.
    private func copyRunning(_ sleepsSeen: inout UInt64?) -> Result<Copied, CaptureError>? {
        var sleeps: UInt64 = 0
        let counted = unsafe stackcap_count_sleeps(target.threadID, &sleeps)
        if let error = CaptureError(counted) { return .failure(error) }
        guard sleepsSeen == sleeps else {
            sleepsSeen = sleeps
            unsafe pause()
            return nil
        }
        let outcome = unsafe stackcap_copy_running(handle, target.threadID, target.low, target.high, deadline)
        if let error = CaptureError(outcome) { return .failure(unsafe explained(error)) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Copied(method: .signal))
    }

    private func explained(_ error: CaptureError) -> CaptureError {
        let isBlocked = unsafe error.code == .notDelivered && stackcap_blocks_signal(target.threadID, signal)
        return isBlocked ? CaptureError(.signalBlocked) : error
    }

    /// Long enough for a thread on its way to sleep to get there.
    private func pause() {
        var time = timespec(tv_sec: 0, tv_nsec: 30_000)
        unsafe nanosleep(&time, nil)
    }
}

extension Target {
    fileprivate var low: UInt64 { UInt64(stack.lowerBound) }
    fileprivate var high: UInt64 { UInt64(stack.upperBound) }
}
