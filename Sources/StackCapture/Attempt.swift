import CStackCapture
import Glibc

/// The way to a consistent copy of one thread's stack: look what it does, copy it accordingly, and look again if it moved.
@unsafe struct Attempt {
    /// A session of which the caller has exclusive use.
    let handle: OpaquePointer
    let signal: Int32
    let target: Target
    /// On `stackcap_now_ns`'s clock, as all times here.
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
        var before: stackcap_progress?
        var isSignalBlocked = false
        repeat {
            let outcome = unsafe stackcap_look_at(target.threadID, &look)
            if let error = CaptureError(outcome) { return .failure(error) }
            if look.state != STACKCAP_STATE_RUNNING {
                if let result = unsafe copyBlocked(look) { return result }
            } else if let result = unsafe copyRunning(since: &before, &isSignalBlocked) {
                return result
            }
        } while unsafe stackcap_now_ns() < deadline
        guard look.state == STACKCAP_STATE_RUNNING else { return .failure(CaptureError(.threadKeptMoving)) }
        // To run the handler it would have needed a processor, and it has not had one.
        return .failure(CaptureError(isSignalBlocked ? .signalBlocked : .notDelivered))
    }

    /// - Returns: nil if the thread ran meanwhile.
    private func copyBlocked(_ look: stackcap_look) -> Result<Copied, CaptureError>? {
        let outcome = unsafe withUnsafePointer(to: look) { look in
            unsafe stackcap_copy_blocked(handle, target.threadID, target.low, target.high, look)
        }
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Copied(method: .quiet, look: look))
    }

    /// Signals the thread only if it is computing. One that comes by between two sleeps would too often be in the next one when the
    /// signal arrives, and be cut short; one that has been woken and waits for a processor is still in its call. One that has the
    /// signal blocked would keep ours, for the application's sigwaitinfo(2) or signalfd(2) to wonder about.
    ///
    /// - Parameters:
    ///   - before: when it was first seen like this.
    ///   - isSignalBlocked: whether it has the signal blocked, as it may for a moment only.
    /// - Returns: nil if the thread sleeps, or may be about to, or cannot take the signal just now.
    private func copyRunning(
        since before: inout stackcap_progress?,
        _ isSignalBlocked: inout Bool
    ) -> Result<Copied, CaptureError>? {
        var now = stackcap_progress()
        let read = unsafe stackcap_read_progress(target.threadID, &now)
        if let error = CaptureError(read) { return .failure(error) }
        isSignalBlocked = unsafe now.blocked >> UInt64(signal - 1) & 1 != 0
        guard unsafe !isSignalBlocked && isComputing(now, since: before) else {
            if before?.sleeps != now.sleeps { before = now }
            unsafe pause()
            return nil
        }
        let outcome = unsafe withUnsafePointer(to: now) { now in
            unsafe stackcap_copy_running(handle, target.threadID, target.low, target.high, now, deadline)
        }
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Copied(method: .signal))
    }

    /// Nanoseconds on a processor without a sleep. A thread that has just been woken needs less to get back into its wait.
    private static var leastWork: UInt64 { 50_000 }

    private func isComputing(_ now: stackcap_progress, since before: stackcap_progress?) -> Bool {
        guard let before, before.sleeps == now.sleeps else { return false }
        return unsafe now.cpu_ns >= before.cpu_ns + Self.leastWork
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
