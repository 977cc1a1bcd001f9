/// Cuts demangled names down to what a heading needs.
enum ShortName {
    /// `closure #1 (Swift.Int) -> () in main.Server.run(_: Swift.Int) -> ()` → `closure #1 in Server.run(_:)`
    static func swift(_ demangled: String) -> String {
        var lead = ""
        var rest = Substring(demangled)
        while let peeled = Demangler.peel(rest) {
            lead += nestedName(at: rest).map { "\($0) in " } ?? ""
            rest = peeled
        }
        return lead + entity(rest)
    }

    /// `closure #1`, of a phrase that says it stands inside another function.
    private static func nestedName(at text: Substring) -> Substring? {
        guard let hash = text.firstIndex(of: "#"), text[..<hash].split(separator: " ").count <= 2,
            text[..<hash].last == " ",
            text.first != "("
        else { return nil }
        return text[..<text[hash...].endOfWord]
    }

    /// `(extension in main):Swift.Array.sum<A>(of: Swift.Int) async -> A` → `Array.sum(of:)`
    private static func entity(_ text: Substring) -> String {
        var rest = text
        if rest.hasPrefix("(extension in "), let colon = rest.firstIndex(of: ":") {
            rest = rest[rest.index(after: colon)...]
        }
        if let dot = rest.firstIndex(of: "."), !rest[..<dot].contains(where: { " (<".contains($0) }) {
            rest = rest[rest.index(after: dot)...]
        }
        var name = ""
        while let character = rest.first, character != " " {
            if character == "<" {
                rest = rest.droppingBrackets()
            } else if character == "(" {
                let inside = rest.dropFirst().dropLast(rest.droppingBrackets().count + 1)
                let isPrivate = inside.contains(" in _")  // "(name in _0123ABCD)"
                name += isPrivate ? String(inside.prefix { $0 != " " }) : "(\(labels(inside)))"
                rest = rest.droppingBrackets()
                if !isPrivate { break }
            } else {
                name.append(character)
                rest = rest.dropFirst()
            }
        }
        return name
    }

    /// `Swift.Int, timeout: Swift.Double` → `_:timeout:`
    private static func labels(_ parameters: Substring) -> String {
        var labels = ""
        var rest = parameters
        while !rest.isEmpty {
            let word = rest.prefix { $0 == "_" || $0.isLetter || $0.isNumber }
            labels += rest.dropFirst(word.count).hasPrefix(": ") ? "\(word):" : "_:"
            guard let next = rest.afterEnclosing(", ") else { break }
            rest = next
        }
        return labels
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

extension Substring {
    fileprivate var endOfWord: Index { firstIndex(of: " ") ?? endIndex }
}
