import Glibc

/// Converts linkers' names to source names. All functions may be called from any thread.
public enum Demangler {
    /// - Returns: The demangled name, or the symbol itself if it is not mangled or has an unknown mangling.
    public static func demangle(_ symbol: String) -> String {
        guard symbol.utf8.count <= longestSymbol else { return symbol }
        return switch language(of: symbol) {
        case .swift: demangleSwift(symbol) ?? symbol
        case .cPlusPlus: demangleCPlusPlus(symbol) ?? symbol
        case .rust: RustName.demangle(symbol).map { String(boundedUTF8: $0.utf8) } ?? symbol
        case .c: symbol
        }
    }

    /// Longer symbols are not demangled, and no symbol file has them: the demanglers call themselves for each level of nesting,
    /// and a symbol of a hostile report would overflow the stack.
    static let longestSymbol = 1 << 16

    package static func language(of symbol: String) -> SymbolicatedFrame.Language {
        // The current Swift prefix ($s), those before 5.0 ($S, _T0), of embedded Swift ($e) and of macro expansions.
        let swift = ["$s", "$S", "$e", "_T0", "_$s", "@__swiftmacro_"]
        if swift.contains(where: symbol.hasPrefix) { return .swift }
        if RustName.isRust(symbol) { return .rust }
        return symbol.hasPrefix("_Z") ? .cPlusPlus : .c
    }

    private static func demangleSwift(_ symbol: String) -> String? {
        initialization(symbol) { runtimeName($0) } ?? runtimeName(symbol)
    }

    /// The code that gives a global or static variable its value, at its first use. The runtime's demanglers write the variable without its
    /// type and module, so that nobody could tell whose code it is. Nil for other symbols.
    ///
    /// - Parameter demangle: Demangles the variable's own symbol.
    static func initialization(_ symbol: String, _ demangle: (String) -> String?) -> String? {
        // The mangled names of both end alike, but for the variable's type, which the former does not have: any type will do.
        let (ending, type) = ("_WZ", " : Swift.Int")
        guard symbol.hasSuffix(ending) else { return nil }
        let variable = String(symbol.dropLast(ending.count) + "Sivp")
        guard let name = demangle(variable), name != variable else { return nil }
        return "one-time initialization function for " + (name.hasSuffix(type) ? name.dropLast(type.count) : name[...])
    }

    private static func runtimeName(_ symbol: String) -> String? {
        var symbol = symbol
        let result = symbol.withUTF8 { utf8 in
            unsafe swiftDemangle(utf8.baseAddress, utf8.count, nil, nil, 0)
        }
        return unsafe owned(result)
    }

    static func demangleCPlusPlus(_ symbol: String) -> String? {
        var status: CInt = 0
        return unsafe owned(symbol.withCString { unsafe cxaDemangle($0, nil, nil, &status) })
    }

    /// The runtimes' demanglers allocate their result with malloc.
    @unsafe static func owned(_ text: UnsafeMutablePointer<CChar>?) -> String? {
        guard let text = unsafe text else { return nil }
        defer { unsafe free(text) }
        return unsafe String(boundedCString: text)
    }
}

/// The Swift runtime's own demangler, exported for tools: swift/Demangling/Demangle.h.
@_silgen_name("swift_demangle")
private func swiftDemangle(
    _ symbol: UnsafePointer<UInt8>?,
    _ length: Int,
    _ buffer: UnsafeMutablePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>?,
    _ flags: UInt32
) -> UnsafeMutablePointer<CChar>?

/// The C++ runtime's demangler: Itanium C++ ABI, 3.4.
@_silgen_name("__cxa_demangle")
private func cxaDemangle(
    _ symbol: UnsafePointer<CChar>,
    _ buffer: UnsafeMutablePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>?,
    _ status: UnsafeMutablePointer<CInt>
) -> UnsafeMutablePointer<CChar>?

/// Parts of a demangled Swift name. The runtime returns only text, so these functions parse its fixed phrases.
extension Demangler {
    /// - Parameter demangled: The result of `demangle` for a Swift symbol.
    /// - Returns: The module whose source contains the function; nil for compiler-generated code.
    static func swiftModule(ofDemangled demangled: String) -> String? {
        guard let entity = sourceEntity(in: demangled) else { return nil }
        if entity.hasPrefix(extensionMark) {
            return entity.dropFirst(extensionMark.count).split(separator: ")").first.map(String.init)
        }
        let module = entity.prefix { $0 == "_" || $0.isLetter || $0.isNumber }
        let isQualified = entity.dropFirst(module.count).first == "."
        return isQualified && !module.isEmpty && module != "__C" ? String(module) : nil
    }

    /// - Parameter symbol: As in the symbol table.
    /// - Returns: The Swift module whose source contains the function; nil for compiler-generated code, and for C and C++.
    public static func swiftModule(of symbol: String) -> String? {
        language(of: symbol) == .swift ? swiftModule(ofDemangled: demangle(symbol)) : nil
    }

    /// A name short enough for a heading: without module, types and signature, but with argument labels.
    /// `Server.handle(_:timeout:)`, `closure #1 in Server.run()`, `std::vector::push_back`. For code that was generated at run
    /// time, the function alone.
    ///
    /// - Parameter symbol: As in the symbol table.
    public static func shortName(_ symbol: String) -> String {
        switch language(of: symbol) {
        case .c: GeneratedName(symbol)?.function ?? symbol
        case .cPlusPlus: ShortName.cPlusPlus(demangle(symbol))
        case .rust: demangle(symbol)
        case .swift: ShortName.swift(symbol) ?? symbol
        }
    }

    /// Before the name of the function around it, as a C++ lambda has none.
    package static let lambdaMark = "lambda in "

    private static let extensionMark = "(extension in "

    /// Phrases of code that the compiler adds, which is in no source.
    private static let madeUp = [
        "protocol witness for ", "dispatch thunk of ", "reabstraction thunk ", "partial apply ", "outlined ",
        "merged outlined ",
        "type metadata ", "lazy protocol witness ", "value witness ", "generic type metadata ",
        "instantiation function for ",
        "lazy cache variable ", "associated type ", "associated conformance ", "base witness ",
        "method lookup function ",
        "metadata ", "back deployment ", "distributed thunk ", "vtable thunk for ", "key path ", "noncanonical ",
        "keypath ", "class metadata ", "default associated ", "demangling cache ", "async function pointer to ",
        "curry thunk of ",
        "coroutine continuation ",
    ]

    /// Phrases before a function that is in the source.
    private static let decorations = [
        "static ", "merged ", "@objc ", "@nonobjc ", "dynamic ", "override ", "async ", "specialized ", "distributed ",
        "one-time initialization function for ", "one-time initialization token for ",
        "variable initialization expression of ",
        "property wrapper backing initializer of ", "infix operator ", "prefix operator ", "postfix operator ",
        "curry thunk of ",
        "opaque type descriptor for ", "owned ",
    ]

    /// Removes the phrases from the front. Nil for code that is in no source.
    static func sourceEntity(in demangled: String) -> Substring? {
        var rest = Substring(demangled)
        while true {
            if madeUp.contains(where: rest.hasPrefix) { return nil }
            guard let peeled = peel(rest) else { return rest }
            rest = peeled
        }
    }

    /// Removes one phrase; nil if there is none.
    static func peel(_ text: Substring) -> Substring? {
        if let decoration = decorations.first(where: text.hasPrefix) { return text.dropFirst(decoration.count) }
        return peelResumption(text) ?? peelSpecialization(text) ?? peelNested(text) ?? peelDefaultArgument(text)
    }

    /// `(1) await resume partial function for `
    private static func peelResumption(_ text: Substring) -> Substring? {
        guard text.first == "(", text.dropFirst().first?.isNumber == true else { return nil }
        return text.after(" resume partial function for ")
    }

    /// `generic specialization <Swift.Int> of `, `function signature specialization <Arg[0] = Dead> of `
    private static func peelSpecialization(_ text: Substring) -> Substring? {
        let phrases = [
            "generic ", "function signature ", "inlined generic ", "closure propagated ", "capture promoted ",
        ]
        guard phrases.contains(where: text.hasPrefix), let open = text.firstIndex(of: "<") else { return nil }
        // The runtime does not close the bracket of a propagated closure: then the first end that looks like one is used.
        return text[open...].droppingBrackets().after(" of ", atStart: true) ?? text.after("> of ")
    }

    /// `closure #1 (Swift.Int) -> () in `, `implicit closure #2 in `, `helper #1 () -> () in `
    private static func peelNested(_ text: Substring) -> Substring? {
        guard let hash = text.firstIndex(of: "#"), text[..<hash].last == " " else { return nil }
        let words = text[..<hash].split(separator: " ")
        guard words == ["closure"] || words == ["implicit", "closure"] || (words.count == 1 && !words[0].contains("."))
        else { return nil }
        return text.afterEnclosing(" in ")
    }

    /// `default argument 1 of `
    private static func peelDefaultArgument(_ text: Substring) -> Substring? {
        text.hasPrefix("default argument ") ? text.after(" of ") : nil
    }
}

extension Substring {
    /// The text after the first occurrence.
    fileprivate func after(_ phrase: String, atStart: Bool = false) -> Substring? {
        if atStart { return hasPrefix(phrase) ? dropFirst(phrase.count) : nil }
        var rest = self
        while !rest.isEmpty {
            if rest.hasPrefix(phrase) { return rest.dropFirst(phrase.count) }
            rest = rest.dropFirst()
        }
        return nil
    }

    /// The text after the first occurrence outside all brackets: a type may itself contain `(extension in X)`.
    func afterEnclosing(_ phrase: String) -> Substring? {
        var rest = self
        while !rest.isEmpty {
            if rest.hasPrefix(phrase) { return rest.dropFirst(phrase.count) }
            rest = rest.droppingBrackets()
        }
        return nil
    }

    /// The text after the bracketed text at the start, or after its first character if that is no bracket; `->` is not a closing bracket.
    func droppingBrackets() -> Substring {
        var depth = 0
        var previous: Character = " "
        for index in indices {
            let character = self[index]
            if "([<{".contains(character) { depth += 1 }
            if ")]}".contains(character) || (character == ">" && previous != "-") { depth -= 1 }
            previous = character
            if depth <= 0 { return self[self.index(after: index)...] }
        }
        return self[endIndex...]
    }
}
