import CStackCapture
import Glibc

/// Another process, opened by the C part. Safe: the pointer is passed only to C calls, and freed once.
@safe struct OpenProcess: ~Copyable {
    private let handle: OpaquePointer
    private let processID: Int32

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
        unsafe stackcap_process_close(handle)
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
