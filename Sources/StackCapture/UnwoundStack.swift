import CStackCapture

/// The result of unwinding one copy of a stack.
struct UnwoundStack {
    var stack: CapturedStack
    /// Whether the awaiting functions are unknown and another capture is more likely to find them: this one has shown where on
    /// the stack they begin, so that they can be read immediately after the next copy.
    var missesCallers: Bool
    /// Whether modules on the stack were loaded or unloaded in the meantime: the stack was unwound without them.
    var isUnsettled: Bool

    /// Unwinds the copy in the session's buffer. The target is running again, so memory may be allocated from here on.
    ///
    /// - Parameter unwind: Unwinds the copy.
    @unsafe static func unwinding(
        _ copied: Attempt.Copied,
        by unwind: (UnsafeMutablePointer<stackcap_unwound>) -> stackcap_outcome
    ) -> Result<UnwoundStack, CaptureError> {
        var unwound = unsafe stackcap_unwound()
        let outcome = unsafe unwind(&unwound)
        if let error = CaptureError(outcome) { return .failure(error) }
        let frames = unsafe UnsafeBufferPointer(start: unwound.frames, count: unwound.count)
        var stack = unsafe CapturedStack(
            frames: frames.map(CapturedStack.Frame.init),
            leftOut: CapturedStack.LeftOut(unwound),
            method: copied.method,
            truncation: CapturedStack.Truncation(unwound.end),
            systemCall: copied.look.flatMap(SystemCall.init),
            asyncCallers: unsafe AsyncCallers(unwound.async),
            cost: CapturedStack.Cost(unwound)
        )
        stack.stackPointers = unsafe frames.map { UInt($0.stack_pointer) }
        return unsafe .success(
            UnwoundStack(stack: stack, missesCallers: unwound.async.is_missed, isUnsettled: unwound.is_unsettled)
        )
    }
}

extension Result where Success == UnwoundStack, Failure == CaptureError {
    /// The stack; or that of a later capture, if only that one is complete and there is time for it.
    ///
    /// - Parameter deadline: On the clock of `stackcap_now_ns`.
    func completed(
        before deadline: UInt64,
        by again: () -> Result<UnwoundStack, CaptureError>
    ) -> Result<CapturedStack, CaptureError> {
        settled(before: deadline, by: again).withCallers(before: deadline, by: again)
    }

    /// While a thread loads modules all the time, no capture may be complete, and each capture can cost the thread a signal.
    private static var mostTries: Int { 8 }

    /// Repeats the capture until no module is loaded or unloaded during it.
    private func settled(before deadline: UInt64, by again: () -> Self) -> Self {
        guard case .success(var latest) = self else { return self }
        var tries = 1
        while latest.isUnsettled, tries < Self.mostTries, stackcap_now_ns() < deadline,
            case .success(var next) = again()
        {
            next.stack.cost = latest.stack.cost + next.stack.cost
            latest = next
            tries += 1
        }
        return .success(latest)
    }

    /// Adds the awaiting functions, if a second capture has them.
    private func withCallers(before deadline: UInt64, by again: () -> Self) -> Result<CapturedStack, CaptureError> {
        guard case .success(let first) = self, first.missesCallers, stackcap_now_ns() < deadline,
            case .success(let second) = again()
        else { return map(\.stack) }
        let hasCallers = second.stack.asyncCallers.map { $0.end != .unknown } ?? false
        var stack = hasCallers ? second.stack : first.stack
        stack.cost = first.stack.cost + second.stack.cost
        return .success(stack)
    }
}

extension CapturedStack.Cost {
    init(_ unwound: stackcap_unwound) {
        unsafe self.init(
            heldNanoseconds: unwound.held_ns,
            unwindNanoseconds: unwound.unwind_ns,
            bytesCopied: unwound.copied_bytes
        )
    }

    fileprivate static func + (one: Self, other: Self) -> Self {
        Self(
            heldNanoseconds: one.heldNanoseconds + other.heldNanoseconds,
            unwindNanoseconds: one.unwindNanoseconds + other.unwindNanoseconds,
            bytesCopied: one.bytesCopied + other.bytesCopied
        )
    }
}

extension CapturedStack.LeftOut {
    /// Nil if no frames are left out.
    init?(_ unwound: stackcap_unwound) {
        guard unsafe unwound.left_out > 0 else { return nil }
        self = unsafe Self(after: unwound.left_out_after, count: unwound.left_out)
    }
}

extension CapturedStack.Frame {
    init(_ frame: stackcap_frame) {
        self.init(
            address: UInt(frame.address),
            found: Found(frame.found),
            state: frame.state == 0 ? nil : frame.state
        )
    }
}

extension CapturedStack.Frame.Found {
    fileprivate init(_ found: stackcap_found) {
        switch found {
        case STACKCAP_FOUND_REGISTER: self = .register
        case STACKCAP_FOUND_CODE: self = .instructions
        case STACKCAP_FOUND_FRAME_POINTER: self = .framePointer
        case STACKCAP_FOUND_SCAN: self = .scan
        default: self = .unwindTable
        }
    }
}

extension CapturedStack.Truncation {
    init?(_ end: stackcap_end) {
        switch end {
        case STACKCAP_END_COMPLETE: return nil
        case STACKCAP_END_TIME_LIMIT: self = .timeLimit
        case STACKCAP_END_COPY_LIMIT: self = .copyLimit
        case STACKCAP_END_NO_TABLE: self = .noUnwindTable
        default: self = .badFrame
        }
    }
}

extension AsyncCallers {
    /// Nil for a stack without an asynchronous function.
    fileprivate init?(_ callers: stackcap_async_callers) {
        guard let end = unsafe End(callers.end) else { return nil }
        let addresses = unsafe UnsafeBufferPointer(start: callers.awaiting, count: callers.count).map(UInt.init)
        let task = unsafe callers.task_number
        self.init(addresses: addresses, frame: unsafe callers.frame, end: end, taskNumber: task == 0 ? nil : task)
    }
}

extension AsyncCallers.End {
    fileprivate init?(_ end: stackcap_async_end) {
        switch end {
        case STACKCAP_ASYNC_NONE: return nil
        case STACKCAP_ASYNC_TASK: self = .task
        case STACKCAP_ASYNC_LET: self = .asyncLet
        case STACKCAP_ASYNC_TASK_GROUP: self = .taskGroup
        case STACKCAP_ASYNC_LIMIT: self = .limit
        default: self = .unknown
        }
    }
}

extension SystemCall {
    /// Nil for a thread that sleeps outside a system call.
    init?(_ look: stackcap_look) {
        guard look.state == STACKCAP_STATE_CALLING else { return nil }
        let arguments = look.arguments
        self.init(
            number: Int(look.call),
            arguments: [arguments.0, arguments.1, arguments.2, arguments.3, arguments.4, arguments.5].map(UInt.init)
        )
    }
}
