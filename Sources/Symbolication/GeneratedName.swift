/// The name that a generator of code has given to a function of a script, taken apart: V8's `JS:load /srv/app.js:12:34`, Python's
/// `py::load:/srv/app.py`.
package struct GeneratedName: Hashable, Sendable {
    /// `load`. Of a function without a name, its place: `(anonymous at app.js:12)`.
    package var function: String
    /// The script. A part of the generator's own library has no path: `node:fs`.
    package var file: String
    /// From 1. Nil if the generator does not name it.
    package var line: Int?
    package var column: Int?

    /// Nil for any other name.
    package init?(_ name: String) {
        if name.hasPrefix("py::") {
            let parts = name.dropFirst(4).split(separator: ":", maxSplits: 1)
            guard parts.count == 2 else { return nil }
            (function, file) = (String(parts[0]), String(parts[1]))
        } else {
            guard let (tag, _) = Self.script(name) else { return nil }
            let place = Self.withoutPosition(name)
            let position = name.dropFirst(place.count).split(separator: ":").map { Int($0) }
            (line, column) = (position.first ?? nil, position.dropFirst().first ?? nil)
            let rest = place.dropFirst(tag.count + 1)
            // The name may contain spaces, `get size`, and so may the path.
            let starts = [" /", " file://", " node:"].compactMap { rest.firstRange(of: $0)?.lowerBound }
            guard let space = starts.min() ?? (position.isEmpty ? nil : rest.lastIndex(of: " ")) else { return nil }
            let path = rest[space...].dropFirst()
            file = String(path.hasPrefix("file://") ? path.dropFirst("file://".count) : path)
            function = String(rest[..<space])
            if function.isEmpty { function = "(anonymous at \(fileName)\(line.map { ":\($0)" } ?? ""))" }
        }
    }

    /// The file without the directory, which may be another one for each release.
    private var fileName: Substring { file.split(separator: "/").last ?? "" }

    /// Where the function begins in the script. Nil without a line.
    var location: SourcePosition? { line.map { SourcePosition(file: file, line: $0, column: column) } }

    /// V8 marks the tier to which a function is compiled, `JS:*name`, and so does .NET, `name(int32)[Tier0]`. It changes while
    /// the function runs; the name without the mark does not.
    static func withoutTier(_ name: String) -> String {
        if name.hasSuffix("]"), let mark = name.lastIndex(of: "["), name[..<mark].hasSuffix(")") {
            return String(name[..<mark])
        }
        guard let (tag, function) = script(name), function.first.map("*~^+-'".contains) == true else { return name }
        return tag + ":" + function.dropFirst()
    }

    /// Identifies the function, whatever V8 has compiled it to; one with a name also after the script was edited further up. Without a
    /// name, only its place distinguishes it from the others in its script: handlers often begin at the same column.
    package var identity: String {
        function.hasPrefix("(") ? "\(fileName):\(line ?? 0):\(column ?? 0)" : "\(function) \(fileName)"
    }

    /// Without the line and column that V8 writes at the end.
    private static func withoutPosition(_ name: String) -> String {
        var place = Substring(name)
        while let colon = place.lastIndex(of: ":"), place[colon...].dropFirst().isDecimal { place = place[..<colon] }
        return String(place)
    }

    /// What V8 writes before the name of a script's function, up to the first colon (`JS` in newer versions, `Eval` and `Script` for
    /// what is outside all functions), and what follows.
    private static func script(_ name: String) -> (tag: Substring, function: Substring)? {
        let tags: [Substring] = ["JS", "LazyCompile", "Function", "Eval", "Script"]
        guard let colon = name.firstIndex(of: ":"), tags.contains(name[..<colon]) else { return nil }
        return (name[..<colon], name[colon...].dropFirst())
    }
}

extension Substring {
    var isDecimal: Bool { !isEmpty && utf8.allSatisfy { (0x30...0x39).contains($0) } }
}
