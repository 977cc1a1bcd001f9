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
}

extension [UInt64] {
    /// Microseconds at 50, 90 and 99 percent.
    var percentiles: String {
        let sorted = sorted()
        guard !sorted.isEmpty else { return "none" }
        return [50, 90, 99].map { "\(Double(sorted[(sorted.count - 1) * $0 / 100] / 100) / 10)" }.joined(separator: "/")
    }
}
