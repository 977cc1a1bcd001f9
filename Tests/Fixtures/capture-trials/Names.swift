import StackCapture
import Symbolication

enum Names {
    /// Linker names, innermost first; `?` for a frame without a name.
    static func of(_ stack: CapturedStack) -> [String] {
        let addresses = stack.frames.enumerated().map {
            ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0)
        }
        return Symbolicator().resolve(addresses, budget: .tool).frames.map { $0.symbol ?? "?" }
    }
}
