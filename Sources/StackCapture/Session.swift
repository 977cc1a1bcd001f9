import CStackCapture
import Glibc

#if arch(x86_64)
    import CStackCapture.Unwind_x86_64
#elseif arch(arm64)
    import CStackCapture.Unwind_aarch64
#endif

/// The thread to capture.
struct Target {
    var threadID: Int32
    var stack: Range<UInt>
}

/// The use of one signal for captures: sample, copy, unwind, in that order, by one thread at a time. Safe: the pointer is
/// passed only to C calls, and C never frees what it points to.
@safe struct Session: ~Copyable {
    /// Owned by C and never freed, so the pointer stays valid. Nil once closed.
    private var handle: OpaquePointer?
    private let signal: Int32
    private var lastCounters = CaptureCounters.zero
    /// The thread of the latest capture, and its progress when it was seen running.
    private var latest: (threadID: Int32, seen: stackcap_progress)?

    init(signal: Int32, readsThroughFile: Bool) throws(CaptureError) {
        self.signal = signal
        let outcome = unsafe stackcap_open(signal, readsThroughFile, &handle)
        if outcome.error == EINVAL { throw CaptureError(.unusableSignal, underlying: EINVAL) }
        if let error = CaptureError(outcome) { throw error }
    }

    mutating func close() {
        guard let handle = unsafe handle else { return }
        lastCounters = counters
        unsafe stackcap_close(handle)
        unsafe self.handle = nil
    }

    var counters: CaptureCounters {
        guard let handle = unsafe handle else { return lastCounters }
        let counted = unsafe stackcap_read_counters(handle)
        return CaptureCounters(
            signalsSent: counted.sent,
            lateSignals: counted.late,
            signalsPassedOn: counted.chained,
            callsCutShort: counted.calls_cut_short
        )
    }

    /// - Parameter since: If the thread gets no processor, a copy requested by an earlier capture is used if it is not older
    ///   than this. Nil: no such copy is used, and none is requested beyond the deadline.
    mutating func capture(
        _ target: Target,
        within deadline: Duration,
        since: UInt64? = nil
    ) -> Result<CapturedStack, CaptureError> {
        guard let handle = unsafe handle else { return .failure(CaptureError(.invalidated)) }
        if target.threadID == stackcap_own_thread() { return .failure(CaptureError(.ownThread)) }
        // The thread's current stack is preferred, if it can be captured.
        let late = since.flatMap { lateCapture(of: target.threadID, since: $0) }
        unsafe stackcap_settle(handle)
        let end = stackcap_now_ns() &+ deadline.nanoseconds
        let attempt = unsafe Attempt(
            handle: handle,
            signal: signal,
            target: target,
            deadline: end,
            staysOpen: since != nil
        )
        var sight = Attempt.Sight()
        if let latest, latest.threadID == target.threadID { sight.before = latest.seen }
        defer { latest = sight.before.map { (target.threadID, $0) } }
        let result = unsafe attempt.take(&sight)
        if let late, case .failure(let error) = result, error.code == .notDelivered { return .success(late) }
        return result
    }

    /// The copy that the thread has made after the deadline of its latest capture.
    func lateCapture(of threadID: Int32, since: UInt64) -> CapturedStack? {
        guard let handle = unsafe handle else { return nil }
        var copiedAt: UInt64 = 0
        let outcome = unsafe stackcap_take_left_open(handle, threadID, &copiedAt)
        guard CaptureError(outcome) == nil, copiedAt >= since else { return nil }
        let unwound = unsafe UnwoundStack.unwinding(Attempt.Copied(method: .signal)) {
            unsafe stackcap_unwind(handle, $0)
        }
        guard case .success(var late) = unwound else { return nil }
        late.stack.copiedAt = copiedAt
        return late.stack
    }

    /// - Parameter count: The number of values, not of bytes.
    /// - Returns: Nil if not all of it can be read.
    func read<Value: FixedWidthInteger>(_: Value.Type, at address: UInt, count: Int) -> [Value]? {
        guard let handle = unsafe handle, count > 0 else { return nil }
        unsafe stackcap_settle(handle)
        let values = unsafe [Value](unsafeUninitializedCapacity: count) { values, filled in
            let length = count * MemoryLayout<Value>.stride
            let isRead = unsafe stackcap_read_memory(handle, UInt64(address), values.baseAddress!, length)
            filled = isRead ? count : 0
        }
        return values.isEmpty ? nil : values
    }

    /// Determines the bounds of the thread's stack from `/proc/self/maps`.
    func capture(threadID: Int32, within deadline: Duration) -> Result<CapturedStack, CaptureError> {
        guard let handle = unsafe handle else { return .failure(CaptureError(.invalidated)) }
        if threadID == stackcap_own_thread() { return .failure(CaptureError(.ownThread)) }
        unsafe stackcap_settle(handle)
        var opened: UnsafeMutablePointer<stackcap_arena>?
        let outcome = unsafe stackcap_arena_open(0, &opened)
        if let error = CaptureError(outcome) { return .failure(error) }
        guard let arena = unsafe opened else { return .failure(CaptureError(.systemCallFailed)) }
        defer { unsafe stackcap_arena_close(arena) }
        let attempt = unsafe Attempt(
            handle: handle,
            signal: signal,
            target: Target(threadID: threadID, stack: 0..<0),
            arena: arena,
            deadline: stackcap_now_ns() &+ deadline.nanoseconds
        )
        var sight = Attempt.Sight()
        return unsafe attempt.take(&sight)
    }

    func captureAll(except excluded: Set<Int32>, within time: Duration) -> Result<ThreadStacks, CaptureError> {
        guard let handle = unsafe handle else { return .failure(CaptureError(.invalidated)) }
        let deadline = stackcap_now_ns() &+ time.nanoseconds
        unsafe stackcap_settle(handle)
        var opened: UnsafeMutablePointer<stackcap_arena>?
        let outcome = unsafe stackcap_arena_open(MemoryLayout<AllThreadsCapture.Entry>.stride, &opened)
        if let error = CaptureError(outcome) { return .failure(error) }
        guard let arena = unsafe opened else { return .failure(CaptureError(.systemCallFailed)) }
        defer { unsafe stackcap_arena_close(arena) }
        let capture = unsafe AllThreadsCapture(handle: handle, signal: signal, deadline: deadline, arena: arena)
        unsafe capture.run(except: excluded)
        return unsafe .success(capture.result())
    }
}

extension Duration {
    /// Whole nanoseconds: 0 for a negative duration, and never more than a century.
    var nanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        return UInt64(min(seconds, 3_000_000_000)) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
    }
}

extension CaptureError {
    /// Nil if the outcome is not an error.
    init?(_ outcome: stackcap_outcome) {
        let code: Code
        switch outcome.status {
        case STACKCAP_OK, STACKCAP_MOVED: return nil
        case STACKCAP_GONE: code = .threadGone
        case STACKCAP_KERNEL_ONLY: code = .kernelThread
        case STACKCAP_NOT_DELIVERED: code = .notDelivered
        case STACKCAP_STUCK: code = .handlerStuck
        case STACKCAP_OUT_OF_BOUNDS: code = .stackOutOfBounds
        case STACKCAP_UNREADABLE: code = .memoryUnreadable
        case STACKCAP_STATE_UNREADABLE: code = .stateUnreadable
        case STACKCAP_UNWINDER: code = .unwinderFailed
        case STACKCAP_IN_USE: code = .signalInUse
        case STACKCAP_REFUSED: code = .accessRefused
        case STACKCAP_NOT_STOPPED: code = .notStopped
        case STACKCAP_REPLACED: code = .processReplaced
        case STACKCAP_OTHER_ARCHITECTURE: code = .otherArchitecture
        default: code = .systemCallFailed
        }
        self.init(code, underlying: outcome.error == 0 ? nil : outcome.error)
    }
}
