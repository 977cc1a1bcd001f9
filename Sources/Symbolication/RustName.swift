/// Names of Rust functions as they are in the source: `_RNvNtCs1a2b_4shop4cart5total` → `shop::cart::total`.
///
/// What a generic function or type is used with is left out, so that a function has one name: `shop::Cart::total`, not
/// `shop::Cart<u32>::total`. A method of a trait is named by its type and its trait: `<shop::Cart as shop::Total>::total`.
enum RustName {
    /// Nil for any other symbol, and for one that is damaged.
    static func demangle(_ symbol: String) -> String? {
        isCurrent(symbol) ? RustPath.name(of: symbol) : withoutHash(symbol).flatMap(older)
    }

    static func isRust(_ symbol: String) -> Bool { isCurrent(symbol) || withoutHash(symbol) != nil }

    /// Whether the mangling is that of Rust's RFC 2603, which the standard library has, too.
    private static func isCurrent(_ symbol: String) -> Bool {
        symbol.hasPrefix("_R") && symbol.dropFirst(2).first.map("CMXYNI".contains) == true
    }

    /// The older mangling is that of C++, with a hash at the end that is another one for each build:
    /// `_ZN4shop4load17h0123456789abcdefE` → `_ZN4shop4loadE`. Nil for any other symbol.
    private static func withoutHash(_ symbol: String) -> String? {
        guard symbol.hasPrefix("_ZN") else { return nil }
        let mangled = SourceFunction.withoutAdditions(symbol).utf8
        let hash = mangled.suffix(20)
        guard hash.starts(with: "17h".utf8), hash.last == UInt8(ascii: "E"),
            hash.dropFirst(3).dropLast().allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) })
        else { return nil }
        return String(decoding: mangled.dropLast(20), as: UTF8.self) + "E"
    }

    // MARK: The older mangling

    private static func older(_ symbol: String) -> String? {
        guard let path = Demangler.demangleCPlusPlus(symbol) else { return nil }
        // A part that begins with an escape has an underscore before it.
        return withoutArguments(unescaped(path.replacing("::_$", with: "::$").trimmingUnderscore))
    }

    private static let escapes: [Substring: String] = [
        "SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ",",
    ]

    /// `$LT$shop..Cart$u20$as$u20$shop..Total$GT$` → `<shop::Cart as shop::Total>`
    private static func unescaped(_ text: some StringProtocol) -> String {
        var name = ""
        var rest = Substring(text)
        while let character = rest.first {
            if rest.hasPrefix("..") {
                name += "::"
                rest = rest.dropFirst(2)
            } else if character == "$", let end = rest.dropFirst().firstIndex(of: "$"),
                let plain = unescaped(escape: rest[..<end].dropFirst())
            {
                name += plain
                rest = rest[end...].dropFirst()
            } else {
                name.append(character)
                rest = rest.dropFirst()
            }
        }
        return name
    }

    private static func unescaped(escape: Substring) -> String? {
        if let plain = escapes[escape] { return plain }
        guard escape.first == "u", let scalar = UInt32(escape.dropFirst(), radix: 16).flatMap(Unicode.Scalar.init)
        else {
            return nil
        }
        return String(Character(scalar))
    }

    /// `<shop::Cart<T> as shop::Total<T>>::total` → `<shop::Cart as shop::Total>::total`
    private static func withoutArguments(_ name: String) -> String {
        var plain = ""
        var rest = Substring(name)
        while let character = rest.first {
            let isArgument = character == "<" && plain.last.map { $0.isLetter || $0.isNumber || $0 == "_" } == true
            if !isArgument { plain.append(character) }
            rest = isArgument ? rest.droppingBrackets() : rest.dropFirst()
        }
        return plain
    }
}

extension String {
    fileprivate var trimmingUnderscore: Substring { hasPrefix("_$") ? dropFirst() : self[...] }
}
