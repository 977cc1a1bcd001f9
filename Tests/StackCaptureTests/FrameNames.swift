import StackCapture
import Symbolication

/// The functions of a stack, innermost first, as the symbol tables name them. "?" for those without a name.
func names(of stack: CapturedStack) -> [String] {
    let addresses = stack.frames.enumerated().map { ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0) }
    return symbolicator.resolve(addresses).frames.map { $0.symbol ?? "?" }
}

private let symbolicator = Symbolicator()
