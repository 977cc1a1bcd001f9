import StackCapture
import Symbolication

extension ProcessSampler {
    /// The function of each frame, innermost first.
    func names(of stack: CapturedStack) -> [String] {
        Symbolicator(processID: processID).resolve(
            stack.frames.enumerated().map { ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0) },
            budget: .tool
        ).frames.map { $0.symbol ?? "?" }
    }

    func capture() -> Result<CapturedStack, CaptureError> { capture(threadID: processID) }

    /// The first stack whose thread is in the system call. On its way there the thread may be too late for a stop, or wait in
    /// vfork(2), where nothing stops it; and it may sleep when it is looked at and go on before it is copied, while we have no processor
    /// until the deadline is over. If it was stopped just as it began to wait, it waits on in restart_syscall(2).
    func firstStack(in call: String) throws -> CapturedStack {
        while true {
            switch capture() {
            case .success(let stack) where [call, "restart_syscall"].contains(stack.systemCall?.name): return stack
            case .failure(let error) where ![.notStopped, .threadKeptMoving].contains(error.code): throw error
            default: continue
            }
        }
    }
}

extension [UInt64] {
    /// Microseconds at 50, 90 and 99 percent.
    var percentiles: String {
        let sorted = sorted()
        guard !sorted.isEmpty else { return "none" }
        return [50, 90, 99].map { "\(Double(sorted[(sorted.count - 1) * $0 / 100] / 100) / 10)" }.joined(separator: "/")
    }
}
