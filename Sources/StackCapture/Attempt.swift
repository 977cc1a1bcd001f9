import CStackCapture
import Glibc

/// Obtains a consistent copy of the stack of a thread of this process: samples the thread's state, copies accordingly, and
/// samples again if it moved.
@unsafe struct Attempt {
    /// A session to which the caller has exclusive access.
    let handle: OpaquePointer
    let signal: Int32
    let target: Target
    /// Holds the bounds of the stacks of all threads. Nil if the target knows its own bounds.
    var arena: UnsafeMutablePointer<stackcap_arena>?
    /// On the clock of `stackcap_now_ns`, like all times here.
    let deadline: UInt64
    /// Whether a running thread's request stays open beyond the deadline.
    var staysOpen = false

    /// Describes the copy in the session's buffer.
    struct Copied {
        var method: CapturedStack.Method
        /// The last sample of a sleeping thread. Nil for a running one.
        var look: stackcap_look?
    }

    /// What earlier samples have shown about the thread.
    struct Sight {
        var look = stackcap_look()
        /// Its progress when it was first seen running.
        var before: stackcap_progress?
        /// Whether it runs and may be about to sleep: it needs more time.
        var isUndecided = false
        /// Whether it has the signal blocked, possibly only for a moment.
        var isSignalBlocked = false
        /// Whether a handler has begun, in this thread or in one that was captured before, and is not done yet: the copy belongs to it.
        var isBehindHandler = false
    }

    /// Copies and unwinds; repeats this if the awaiting functions were not seen in time.
    ///
    /// - Parameter sight: As for ``copy(_:)``.
    func take(_ sight: inout Sight) -> Result<CapturedStack, CaptureError> {
        unsafe takeOnce(&sight).completed(before: deadline) {
            var again = unsafe self
            unsafe again.staysOpen = false
            return unsafe again.takeOnce(&sight)
        }
    }

    private func takeOnce(_ sight: inout Sight) -> Result<UnwoundStack, CaptureError> {
        unsafe copy(&sight).flatMap { copied in
            unsafe UnwoundStack.unwinding(copied) { unsafe stackcap_unwind(handle, $0) }
        }
    }

    /// Samples and copies until a copy is consistent or the deadline has passed. Allocates nothing.
    ///
    /// - Parameter sight: What an earlier attempt has shown about this thread. It saves a computing thread the second sample.
    ///   It is also the only way to distinguish a thread that gets no processor from one that does not compute: within one
    ///   attempt neither moves.
    func copy(_ sight: inout Sight) -> Result<Copied, CaptureError> {
        repeat {
            if let result = unsafe copyOnce(&sight) { return result }
            if sight.isUndecided || sight.isBehindHandler { unsafe Self.pause() }
        } while unsafe stackcap_now_ns() < deadline
        return unsafe .failure(failure(afterDeadlineOf: sight))
    }

    /// Why there is no copy when the deadline has passed.
    func failure(afterDeadlineOf sight: Sight) -> CaptureError {
        if sight.isBehindHandler { return CaptureError(.handlerStuck) }
        // The handler needs a processor to run, and the thread has not had one.
        guard sight.look.state == STACKCAP_STATE_RUNNING else { return CaptureError(.threadKeptMoving) }
        return CaptureError(sight.isSignalBlocked ? .signalBlocked : .notDelivered)
    }

    /// - Returns: Nil if another attempt is needed.
    func copyOnce(_ sight: inout Sight) -> Result<Copied, CaptureError>? {
        let outcome = unsafe stackcap_look_at(target.threadID, &sight.look)
        (sight.isUndecided, sight.isBehindHandler) = (false, false)
        if let error = CaptureError(outcome) { return .failure(error) }
        guard sight.look.state == STACKCAP_STATE_RUNNING else { return unsafe copyBlocked(&sight) }
        return unsafe copyRunning(&sight)
    }

    /// - Returns: Nil if the thread has run in the meantime, or a handler has the copy.
    private func copyBlocked(_ sight: inout Sight) -> Result<Copied, CaptureError>? {
        let look = sight.look
        guard let bounds = unsafe bounds(at: look.stack_pointer) else {
            return .failure(CaptureError(.stackOutOfBounds))
        }
        let outcome = unsafe withUnsafePointer(to: look) { look in
            unsafe stackcap_copy_blocked(handle, target.threadID, bounds.low, bounds.high, look)
        }
        sight.isBehindHandler = outcome.status == STACKCAP_STUCK
        if sight.isBehindHandler { return nil }
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Copied(method: .quiet, look: look))
    }

    /// Signals the thread only if it is computing. A thread that runs briefly between two sleeps would often be in the next
    /// sleep when the signal arrives, and the sleep would be cut short; a thread that was woken and waits for a processor is
    /// still in its system call. If the thread has the signal blocked, the signal would stay pending until the application's
    /// sigwaitinfo(2) or signalfd(2) receives it.
    ///
    /// - Returns: Nil if the thread sleeps, or may be about to, or cannot receive the signal just now, or a handler has the copy.
    private func copyRunning(_ sight: inout Sight) -> Result<Copied, CaptureError>? {
        var now = stackcap_progress()
        let read = unsafe stackcap_read_progress(target.threadID, &now)
        if let error = CaptureError(read) { return .failure(error) }
        sight.isSignalBlocked = unsafe now.blocked >> UInt64(signal - 1) & 1 != 0
        guard unsafe !sight.isSignalBlocked && isComputing(now, since: sight.before) else {
            if sight.before?.sleeps != now.sleeps { sight.before = now }
            sight.isUndecided = true
            return nil
        }
        let (low, high) = unsafe arena == nil ? (target.low, target.high) : (0, .max)
        let outcome = unsafe withUnsafePointer(to: now) { now in
            unsafe stackcap_copy_running(handle, target.threadID, low, high, now, deadline, staysOpen)
        }
        sight.isBehindHandler = outcome.status == STACKCAP_STUCK
        if sight.isBehindHandler { return nil }
        if let arena = unsafe arena, outcome.status == STACKCAP_OK { unsafe stackcap_arena_bound_copy(arena, handle) }
        if let error = CaptureError(outcome) { return .failure(error) }
        return outcome.status == STACKCAP_MOVED ? nil : .success(Copied(method: .signal))
    }

    /// Nanoseconds on a processor without a sleep. A thread that has just been woken needs less to return to its wait.
    private static var leastWork: UInt64 { 50_000 }

    private func isComputing(_ now: stackcap_progress, since before: stackcap_progress?) -> Bool {
        guard let before, before.sleeps == now.sleeps else { return false }
        return unsafe now.cpu_ns >= before.cpu_ns && now.cpu_ns - before.cpu_ns >= Self.leastWork
    }

    private func bounds(at stackPointer: UInt64) -> (low: UInt64, high: UInt64)? {
        guard let arena = unsafe arena else { return unsafe (target.low, target.high) }
        var low: UInt64 = 0
        var high: UInt64 = 0
        return unsafe stackcap_arena_bounds(arena, stackPointer, &low, &high) ? (low, high) : nil
    }

    /// Long enough for a thread that is about to sleep to do so.
    static func pause() {
        var time = timespec(tv_sec: 0, tv_nsec: 30_000)
        unsafe nanosleep(&time, nil)
    }
}

extension Target {
    fileprivate var low: UInt64 { UInt64(stack.lowerBound) }
    fileprivate var high: UInt64 { UInt64(stack.upperBound) }
}

/// The same for a thread of another process.
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
