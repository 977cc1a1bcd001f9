/// A function as it is in the source, whatever compilers made of it. It is the same for debug and release builds, for all
/// specialisations of a generic function, for each part into which an asynchronous or split function was cut, and for each copy.
public struct SourceFunction: Hashable, Sendable {
    /// With types and argument labels, as the demangler writes them, without what optimisation adds: `closure #1 (Swift.Int) ->
    /// () in shop.Cart.total() -> Swift.Int`. For a C++ function with a template in its name or types, the name alone.
    public var name: String
    /// For a closure, the enclosing functions, the innermost first: the last one is not a closure.
    public var enclosing: [String]
    /// The Swift module whose source contains it. Nil for compiler-generated code, and for C and C++.
    public var swiftModule: String?
    /// Whether it is in no source: a thunk, a witness, a metadata accessor.
    public var isMadeUp: Bool
    /// Whether the compiler merged this function and similar ones into one body: any of them may have been called.
    public var isMerged: Bool

    /// - Parameter symbol: As in the symbol table.
    public init(symbol: String) {
        let language = Demangler.language(of: symbol)
        // In a mangled name, a dot begins what the compiler's back end adds for a part or a copy. Rust has dots in paths, too.
        let symbol =
            switch language {
            case .c: GeneratedName(symbol)?.identity ?? Self.withoutAdditions(symbol)
            case .rust: symbol
            case .cPlusPlus, .swift: String(symbol.prefix { $0 != "." })
            }
        let demangled = Demangler.demangle(symbol)
        (enclosing, swiftModule, isMadeUp, isMerged) = ([], nil, false, false)
        switch language {
        case .c: name = symbol
        case .rust: name = demangled
        case .cPlusPlus: name = Self.templateName(demangled) ?? demangled
        case .swift:
            let function = Demangler.withoutOptimisation(demangled)
            name = String(function)
            swiftModule = Demangler.swiftModule(ofDemangled: name)
            isMadeUp = Demangler.sourceEntity(in: demangled) == nil
            enclosing = Demangler.enclosing(function)
            isMerged = demangled.hasPrefix("merged ") || demangled.contains(" merged ")
        }
    }

    /// Removes what the compiler's back end adds to the name of a part or a copy, `.part.0.isra.0`, `.cold`. Other dots belong to
    /// the names of Go, Rust and the JVM: `main.(*Server).handle`.
    static func withoutAdditions(_ symbol: String) -> String {
        var parts = symbol.split(separator: ".", omittingEmptySubsequences: false)
        while let count = additionLength(parts) { parts.removeLast(count) }
        return parts.joined(separator: ".")
    }

    /// How many parts at the end are one addition. Nil if none are.
    private static func additionLength(_ parts: [Substring]) -> Int? {
        guard parts.count > 1, parts[0] != "", let last = parts.last else { return nil }
        let plain: [Substring] = ["cold", "localalias", "omp_outlined"]
        if plain.contains(last) { return 1 }
        guard last.isDecimal else { return nil }
        let numbered: [Substring] = [
            "part", "isra", "constprop", "llvm", "lto_priv", "clone", "specialized", "__uniq", "__part", "_omp_fn",
        ]
        if parts.count > 2, (plain + numbered).contains(parts[parts.count - 2]) { return 2 }
        // A function inside another one, or one of several static ones with the same name.
        return parts.count == 2 ? 1 : nil
    }

    /// The name of a C++ function with a template in its name or types: a template function's types are those of the specialisation.
    /// Overloads that take a `std::string`, which is a template, therefore count as one function. Nil for any other function.
    private static func templateName(_ demangled: String) -> String? {
        guard demangled.contains("<"), !demangled.contains("operator") else { return nil }
        return ShortName.cPlusPlus(demangled)
    }
}

extension Demangler {
    /// Removes what optimisation adds to the front, and the forwarder of a partial application: the code that runs there is the
    /// function's.
    fileprivate static func withoutOptimisation(_ demangled: String) -> Substring {
        var rest = Substring(demangled)
        while let peeled = peelOptimisation(rest) { rest = peeled }
        return rest
    }

    private static func peelOptimisation(_ text: Substring) -> Substring? {
        let phrases = ["merged ", "specialized ", "partial apply forwarder for "]
        if let phrase = phrases.first(where: text.hasPrefix) { return text.dropFirst(phrase.count) }
        let isMarked = text.first == "(" || text.hasSpecialization
        return isMarked ? peel(text) : nil
    }

    /// The functions that enclose a closure: closures first, then the function.
    fileprivate static func enclosing(_ function: Substring) -> [String] {
        var names: [String] = []
        var rest = function
        while ["closure #", "implicit closure #", "$defer #"].contains(where: rest.hasPrefix),
            let outer = rest.afterEnclosing(" in ")
        {
            names.append(String(outer))
            rest = outer
        }
        return names
    }
}

extension Substring {
    /// `generic specialization <`, `function signature specialization <`, `inlined generic function <`, `closure propagated …`
    fileprivate var hasSpecialization: Bool {
        [
            "generic specialization <", "generic partial specialization <", "generic pre-specialization <",
            "generic not re-abstracted ", "function signature specialization <", "inlined generic ",
            "closure propagated ", "capture promoted ",
        ].contains(where: hasPrefix)
    }
}

/// Shortens names for headings.
enum ShortName {
    /// As the runtime writes its own backtraces: without modules and types, with argument labels. Nil if it is not a Swift
    /// symbol. `closure #1 in Server.run(_:)`
    static func swift(_ symbol: String) -> String? {
        guard let name = Demangler.initialization(symbol, backtraceName) ?? backtraceName(symbol) else { return nil }
        let plain = name.hasPrefix("specialized ") ? String(name.dropFirst("specialized ".count)) : name
        // One body for several functions, named after one of them: it is not known which of them was called.
        let merged = symbol.hasSuffix("Tm") ? "merged " : ""
        return merged + plain + (builtInClosure(in: symbol).map { " with \($0)" } ?? "")
    }

    /// The closure that the optimiser has inlined into a function: the code that runs there is the closure's as well as the
    /// function's. `… [Closure Propagated : $s4main3runyyFyycfU_, Argument Types : […` → `closure #1 in run()`
    private static func builtInClosure(in symbol: String) -> String? {
        let mark = "Closure Propagated : "
        let phrases = Demangler.demangle(symbol).split(separator: "[")
        guard let phrase = phrases.first(where: { $0.hasPrefix(mark) }) else { return nil }
        return swift(String(phrase.dropFirst(mark.count).prefix { $0 != "," && $0 != "]" && $0 != ">" }))
    }

    private static func backtraceName(_ symbol: String) -> String? {
        guard symbol.utf8.count <= Demangler.longestSymbol else { return nil }
        var size = 0
        return unsafe Demangler.owned(
            symbol.withCString { unsafe backtraceDemangle($0, symbol.utf8.count, nil, &size) }
        )
    }

    /// `std::vector<int>::push_back(int const&)` → `std::vector::push_back`, `shop::load()::{lambda(int)#1}::operator()(int) const` →
    /// `lambda in shop::load`
    static func cPlusPlus(_ demangled: String) -> String {
        // The second is Clang's form for a lambda that no other file can use.
        for lambda in ["::{lambda(", "::$_"] {
            guard let rest = Substring(demangled).afterEnclosing(lambda), rest.contains("operator()") else { continue }
            return Demangler.lambdaMark + cPlusPlus(String(demangled.dropLast(rest.count + lambda.count)))
        }
        var name = ""
        var rest = Substring(demangled)
        while let character = rest.first {
            if rest.hasPrefix("(anonymous namespace)") || rest.hasPrefix("operator(") {
                let kept = rest.prefix(rest.hasPrefix("operator(") ? 10 : 21)
                name += kept
                rest = rest.dropFirst(kept.count)
            } else if character == "<", !name.hasSuffix("operator"), !name.hasSuffix("operator<") {
                rest = rest.droppingBrackets()
            } else if character == "(", name == "decltype" || name == "decltype " {
                // A template's result: `decltype(auto) shop::total<int>(int)`.
                let function = rest.droppingBrackets().drop { $0 == " " }
                if function.isEmpty { break }
                (name, rest) = ("", function)
            } else if character == "(", name.hasSuffix(" "), let function = functionInside(rest) {
                (name, rest) = ("", function)
            } else if character == "(" {
                break
            } else {
                name.append(character)
                rest = rest.dropFirst()
            }
        }
        return withoutResult(name)
    }

    /// The name of a template function begins with its result's type: `bool shop::find` → `shop::find`.
    private static func withoutResult(_ name: String) -> String {
        var type = name[..<(name.firstRange(of: "operator")?.lowerBound ?? name.endIndex)]
        while let space = type.lastIndex(of: " ") {
            type = type[..<space]
            if !type.hasSuffix("(anonymous") { return String(name[space...].dropFirst()) }
        }
        return name
    }

    /// A template function whose result is a pointer to a function stands inside its result: `void (*shop::pick<int>(int))(int)`. Nil
    /// for other brackets.
    private static func functionInside(_ bracket: Substring) -> Substring? {
        var function = bracket
        repeat {
            let declarator = function.dropFirst().prefix { !"()<> ".contains($0) }
            guard let mark = declarator.lastIndex(where: { $0 == "*" || $0 == "&" }) else { return nil }
            function = function[mark...].dropFirst()
        } while function.first == "(" && !function.hasPrefix("(anonymous namespace)")
        return function.first.map { ")<> ".contains($0) } ?? true ? nil : function
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
