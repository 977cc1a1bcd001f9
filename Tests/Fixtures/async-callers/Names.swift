import Foundation
import StackCapture
import Symbolication

/// The names of awaiting functions, and the lines on which they await.
struct Names {
    struct Place {
        /// Without generic arguments.
        var function: String
        /// The function's Swift module, nil for functions that the compiler generates.
        var module: String?
        var line: Int?
        /// Lines of the calls inlined there: the awaiting closure may be one of them.
        var inlinedLines: [Int] = []

        /// A closure that the optimiser has merged into the function.
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
        let frames = symbolicator.resolve(addresses.map { ResolvableAddress(address: $0, kind: .resumption) }).frames
        for frame in frames {
            var place = Place(frame.symbol.map(Demangler.shortName) ?? "?", module: frame.swiftModule)
            place.line = frame.location?.line
            place.inlinedLines = frame.inlined.compactMap { $0.location?.line }
            places[frame.address] = place
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
