/// A JSON text that is known to be valid, with the places of its values. Made in one pass without recursion: nesting costs memory, but no
/// stack.
///
/// A class, because each value's decoder has a reference to it. Unchanged once it is made.
final class ParsedJSON {
    enum Kind: UInt8 { case null, bool, number, text, array, object }

    /// A value, or a member's name, which is a text before its value. Nodes are in the order of the document.
    struct Node {
        let kind: Kind
        /// Whether a text has escapes; whether a name in an object may differ from its bytes in the document.
        fileprivate(set) var hasEscapes = false
        /// The array or the object that it is in. The whole document's is itself.
        let parent: UInt32
        /// Its index among the values of that array or object.
        let index: UInt32
        /// A scalar's place in the document, without quotation marks. Of an array or an object both are 0 at first, and each value in it adds
        /// one to the end.
        let start: UInt32
        fileprivate(set) var end: UInt32
        /// The first node after it and all in it.
        fileprivate(set) var next: UInt32

        /// The number of bytes, elements or members.
        var count: Int { Int(end - start) }
    }

    private let document: [UInt8]
    private let nodes: [Node]
    /// For the values' decoders.
    let userInfo: [CodingUserInfoKey: any Sendable]

    /// - Throws: `DecodingError.dataCorrupted` without a path, if it is not JSON in UTF-8.
    init(_ document: [UInt8], userInfo: [CodingUserInfoKey: any Sendable] = [:]) throws {
        var parser = JSONParser(document)
        guard document.count < UInt32.max, (try? UTF8Span(validating: document.span)) != nil, parser.parse() else {
            throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "not JSON"))
        }
        (self.document, nodes, self.userInfo) = (document, parser.nodes, userInfo)
    }

    subscript(node: Int) -> Node { nodes[node] }

    func bytes(of node: Int) -> ArraySlice<UInt8> { document[Int(nodes[node].start)..<Int(nodes[node].end)] }

    func next(after node: Int) -> Int { Int(nodes[node].next) }

    /// Nil if an escape in it is half a character.
    func text(of node: Int) -> String? {
        let bytes = bytes(of: node)
        let text = nodes[node].hasEscapes ? Self.unescaped(bytes) : String(decoding: bytes, as: UTF8.self)
        return text?.withFewMarks
    }

    /// Whether a member's name, which is that of its bytes, is this one.
    func isName(_ node: Int, _ name: String) -> Bool {
        nodes[node].count == name.utf8.count && bytes(of: node).elementsEqual(name.utf8)
    }

    private static func unescaped(_ bytes: ArraySlice<UInt8>) -> String? {
        var (units, rest): ([UInt8], ArraySlice<UInt8>) = ([], bytes)
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\"), let escape = rest.popFirst() else {
                units.append(byte)
                continue
            }
            switch escape {
            case UInt8(ascii: "b"): units.append(0x08)
            case UInt8(ascii: "f"): units.append(0x0c)
            case UInt8(ascii: "n"): units.append(0x0a)
            case UInt8(ascii: "r"): units.append(0x0d)
            case UInt8(ascii: "t"): units.append(0x09)
            case UInt8(ascii: "u"):
                guard let scalar = takeScalar(from: &rest) else { return nil }
                units += UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter
            default: units.append(escape)
            }
        }
        return String(decoding: units, as: UTF8.self)
    }

    /// The character whose `\u` was read. Outside the basic plane it has two of them.
    private static func takeScalar(from rest: inout ArraySlice<UInt8>) -> Unicode.Scalar? {
        func unit() -> UInt32? {
            defer { rest = rest.dropFirst(4) }
            return UInt32(String(decoding: rest.prefix(4), as: UTF8.self), radix: 16)
        }
        guard let high = unit() else { return nil }
        guard (0xd800..<0xdc00).contains(high) else { return Unicode.Scalar(high) }
        guard rest.starts(with: "\\u".utf8) else { return nil }
        rest = rest.dropFirst(2)
        guard let low = unit(), (0xdc00..<0xe000).contains(low) else { return nil }
        return Unicode.Scalar(0x10000 + (high - 0xd800) << 10 + (low - 0xdc00))
    }
}

/// Checks the grammar of RFC 8259 and finds the values.
private struct JSONParser {
    private let document: [UInt8]
    private var place = 0
    private(set) var nodes: [ParsedJSON.Node] = []
    /// The innermost array or object that is open. Nil outside all.
    private var open: Int?

    init(_ document: [UInt8]) {
        self.document = document
        // Some editors put a mark of the byte order before a text.
        if document.starts(with: [0xef, 0xbb, 0xbf]) { place = 3 }
        nodes.reserveCapacity(Self.mostNodes(in: document))
    }

    /// Before each node but the first is one of these. With room for all from the start, a document takes 24 bytes for each of them.
    private static func mostNodes(in document: [UInt8]) -> Int {
        var count = 1
        for byte in document {
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: ","), UInt8(ascii: ":"): count += 1
            default: break
            }
        }
        return count
    }

    /// Whether the document is valid.
    mutating func parse() -> Bool {
        repeat {
            guard takeValue() else { return false }
        } while takeSeparator()
        return open == nil && place == document.count
    }

    /// A scalar; or the begin of an array or an object with its first value, or all of an empty one.
    private mutating func takeValue() -> Bool {
        while true {
            guard let byte = nextByte() else { return false }
            switch byte {
            case UInt8(ascii: "{"):
                begin(.object)
                if nextByte() == UInt8(ascii: "}") { return end() }
                guard takeName() else { return false }
            case UInt8(ascii: "["):
                begin(.array)
                if nextByte() == UInt8(ascii: "]") { return end() }
            case UInt8(ascii: "\""): return takeText()
            case UInt8(ascii: "t"): return takeWord("true", .bool)
            case UInt8(ascii: "f"): return takeWord("false", .bool)
            case UInt8(ascii: "n"): return takeWord("null", .null)
            default: return takeNumber()
            }
        }
    }

    /// What follows a value: the ends of what it is in, and a comma if another value follows. False if none does.
    private mutating func takeSeparator() -> Bool {
        while let byte = nextByte(), let container = open {
            let isObject = nodes[container].kind == .object
            if byte == UInt8(ascii: ",") {
                place += 1
                return isObject ? takeName() : true
            }
            guard byte == (isObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) else { return false }
            _ = end()
        }
        return false
    }

    private mutating func begin(_ kind: ParsedJSON.Kind) {
        add(kind, from: 0, to: 0)
        open = nodes.count - 1
        place += 1
    }

    private mutating func end() -> Bool {
        guard let container = open else { return false }
        place += 1
        nodes[container].next = UInt32(nodes.count)
        open = container == 0 ? nil : Int(nodes[container].parent)
        return true
    }

    private mutating func add(_ kind: ParsedJSON.Kind, from start: Int, to end: Int, isName: Bool = false) {
        let index = open.map { nodes[$0].end } ?? 0
        if let open, !isName { nodes[open].end += 1 }
        nodes.append(
            .init(
                kind: kind,
                parent: UInt32(open ?? 0),
                index: index,
                start: UInt32(start),
                end: UInt32(end),
                next: UInt32(nodes.count + 1)
            )
        )
    }

    private mutating func takeName() -> Bool {
        guard nextByte() == UInt8(ascii: "\""), takeText(isName: true), nextByte() == UInt8(ascii: ":") else {
            return false
        }
        place += 1
        return true
    }

    private mutating func takeText(isName: Bool = false) -> Bool {
        place += 1
        let start = place
        var hasEscapes = false
        while place < document.count {
            switch document[place] {
            case UInt8(ascii: "\""):
                add(.text, from: start, to: place, isName: isName)
                nodes[nodes.count - 1].hasEscapes = hasEscapes
                let mayDiffer = hasEscapes || place - start > String.longestAsItIs
                if isName, mayDiffer, let open { nodes[open].hasEscapes = true }
                place += 1
                return true
            case UInt8(ascii: "\\"):
                hasEscapes = true
                guard passEscape() else { return false }
            case ..<0x20: return false
            default: place += 1
            }
        }
        return false
    }

    private mutating func passEscape() -> Bool {
        let escape = document[place...].dropFirst()
        guard let first = escape.first else { return false }
        guard first == UInt8(ascii: "u") else {
            place += 2
            return "\"\\/bfnrt".utf8.contains(first)
        }
        place += 6
        let digits = escape.dropFirst().prefix(4)
        return digits.count == 4 && digits.allSatisfy { Unicode.Scalar($0).properties.isASCIIHexDigit }
    }

    private mutating func takeWord(_ word: StaticString, _ kind: ParsedJSON.Kind) -> Bool {
        let end = place + word.utf8CodeUnitCount
        guard end <= document.count,
            word.withUTF8Buffer({ unsafe document[place..<end].elementsEqual($0) })
        else { return false }
        add(kind, from: place, to: end)
        place = end
        return true
    }

    private mutating func takeNumber() -> Bool {
        let start = place
        if document[place] == UInt8(ascii: "-") { place += 1 }
        let leading = place
        guard passDigits(), place == leading + 1 || document[leading] != UInt8(ascii: "0") else { return false }
        if place < document.count, document[place] == UInt8(ascii: ".") {
            place += 1
            guard passDigits() else { return false }
        }
        if place < document.count, document[place] | 0x20 == UInt8(ascii: "e") {
            place += 1
            if place < document.count, document[place] == UInt8(ascii: "+") || document[place] == UInt8(ascii: "-") {
                place += 1
            }
            guard passDigits() else { return false }
        }
        add(.number, from: start, to: place)
        return true
    }

    /// False if there is none.
    private mutating func passDigits() -> Bool {
        let start = place
        while place < document.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(document[place]) { place += 1 }
        return place > start
    }

    /// The next byte that is not white space; it is not taken.
    private mutating func nextByte() -> UInt8? {
        while place < document.count {
            switch document[place] {
            case 0x20, 0x09, 0x0a, 0x0d: place += 1
            default: return document[place]
            }
        }
        return nil
    }
}
