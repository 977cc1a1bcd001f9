import StackCapture
import Symbolication

/// The functions of a stack, innermost first, with their symbol table names. "?" for those without a name. There is no time
/// limit, because the machine may be busy.
func names(of stack: CapturedStack) -> [String] {
    let addresses = stack.frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) }
    return symbolicator.resolve(addresses, budget: .tool).frames.map { $0.symbol ?? "?" }
}

private let symbolicator = Symbolicator()
