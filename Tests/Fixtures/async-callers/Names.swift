import Foundation
import StackCapture
import Symbolication

/// What awaiting functions are called, and the lines on which they await, by a tool of the system's.
struct Names {
    struct Place {
        /// Without generic arguments.
        var function: String
        /// The Swift module it stands in, nil for what the compiler adds of its own accord.
        var module: String?
        var line: Int?

        /// A closure that the optimiser has built into it.
        var builtIn: String?

        init(_ name: String, module: String?) {
            let parts = name.components(separatedBy: " with ")
            function = Names.plain(parts[0])
            builtIn = parts.count > 1 ? Names.plain(parts[1]) : nil
            self.module = module
        }

        var isOwn: Bool { module == "async_callers" && !function.contains(".__allocating_init") }
    }

    private(set) var places: [UInt: Place] = [:]

    private let symbolicator = Symbolicator()

    init(of all: [AsyncCallers]) {
        let addresses = Array(Set(all.flatMap { $0.addresses }))
        // A resume function's first instruction: not a return address.
        let frames = symbolicator.resolve(
            addresses.map { ResolvableAddress(address: $0, isReturnAddress: false) }
        ).frames
        for frame in frames {
            places[frame.address] = Place(frame.symbol.map(Demangler.shortName) ?? "?", module: frame.swiftModule)
        }
        let lines = Lines()
        for frame in frames where frame.swiftModule == "async_callers" {
            places[frame.address]?.line = lines.line(resumedAt: frame.moduleOffset) { [symbolicator] offset in
                let base = frame.address - frame.moduleOffset
                let place = ResolvableAddress(address: base + offset, isReturnAddress: false)
                return symbolicator.resolve([place]).frames[0].functionOffset.map { offset - $0 }
            }
        }
    }

    /// `twice<A>(_:)` → `twice(_:)`
    private static func plain(_ name: String) -> String {
        var plain = ""
        var depth = 0
        for character in name {
            depth += character == "<" ? 1 : 0
            if depth == 0 { plain.append(character) }
            depth -= character == ">" ? 1 : 0
        }
        return plain
    }

    /// A stack's functions, innermost first.
    func functions(of stack: CapturedStack) -> [String] {
        let addresses = stack.frames.enumerated().map {
            ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0)
        }
        return symbolicator.resolve(addresses).frames.map { $0.symbol.map(Demangler.shortName) ?? "?" }
    }
}
