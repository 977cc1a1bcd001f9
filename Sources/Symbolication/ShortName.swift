import Glibc

/// Cuts names down to what a heading needs.
enum ShortName {
    /// As the runtime writes its own backtraces: without modules and types, with argument labels. Nil if the symbol is not Swift's.
    /// `closure #1 in Server.run(_:)`
    static func swift(_ symbol: String) -> String? {
        guard let name = backtraceName(symbol) else { return nil }
        let plain = name.hasPrefix("specialized ") ? String(name.dropFirst("specialized ".count)) : name
        // One body for several functions, named by one of them: which of them was called nobody knows.
        let merged = symbol.hasSuffix("Tm") ? "merged " : ""
        return merged + plain + (builtInClosure(in: symbol).map { " with \($0)" } ?? "")
    }

    /// The closure that the optimiser has built into a function: what runs there is the closure's code as much as the function's.
    /// `… [Closure Propagated : $s4main3runyyFyycfU_, Argument Types : […` → `closure #1 in run()`
    private static func builtInClosure(in symbol: String) -> String? {
        let mark = "Closure Propagated : "
        let phrases = Demangler.demangle(symbol).split(separator: "[")
        guard let phrase = phrases.first(where: { $0.hasPrefix(mark) }) else { return nil }
        return swift(String(phrase.dropFirst(mark.count).prefix { $0 != "," && $0 != "]" && $0 != ">" }))
    }

    private static func backtraceName(_ symbol: String) -> String? {
        var size = 0
        let name = unsafe symbol.withCString { unsafe backtraceDemangle($0, symbol.utf8.count, nil, &size) }
        guard let name = unsafe name else { return nil }
        defer { unsafe free(name) }
        return unsafe String(cString: name)
    }

    /// `std::vector<int>::push_back(int const&)` → `std::vector::push_back`
    static func cPlusPlus(_ demangled: String) -> String {
        var name = ""
        var rest = Substring(demangled)
        while let character = rest.first {
            if rest.hasPrefix("(anonymous namespace)") || rest.hasPrefix("operator(") {
                let kept = rest.prefix(rest.hasPrefix("operator(") ? 10 : 21)
                name += kept
                rest = rest.dropFirst(kept.count)
            } else if character == "<", !name.hasSuffix("operator"), !name.hasSuffix("operator<") {
                rest = rest.droppingBrackets()
            } else if character == "(" {
                break
            } else {
                name.append(character)
                rest = rest.dropFirst()
            }
        }
        return name
    }
}

/// The Swift runtime's demangler for backtraces: swift/stdlib/public/runtime/Backtrace.cpp. Allocates its result with malloc.
@_silgen_name("_swift_backtrace_demangle")
private func backtraceDemangle(
    _ symbol: UnsafePointer<CChar>,
    _ length: Int,
    _ buffer: UnsafeMutablePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>
) -> UnsafeMutablePointer<CChar>?
