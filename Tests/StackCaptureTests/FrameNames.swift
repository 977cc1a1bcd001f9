import StackCapture
import Symbolication

/// The functions of a stack, innermost first, as the symbol tables name them. "?" for those without a name. However
/// long it takes: the machine may be busy.
func names(of stack: CapturedStack) -> [String] {
    let addresses = stack.frames.enumerated().map { ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0) }
    return symbolicator.resolve(addresses, budget: .tool).frames.map { $0.symbol ?? "?" }
}

private let symbolicator = Symbolicator()
