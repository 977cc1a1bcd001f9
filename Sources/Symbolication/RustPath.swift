/// Reads a name of Rust's current mangling (Rust RFC 2603): `_R`, and then a path. Pure; the symbol is not trusted.
struct RustPath {
    private struct Damaged: Error {}

    /// Without `_R`, which the places in back references do not count.
    private let symbol: [UInt8]
    private var position = 0
    private var depth = 0
    private var steps = 0
    private var name = ""
    /// Whether what is read belongs to the name. What does not is only skipped, which takes no longer than it is.
    private var isNamed = true

    /// Longer and deeper names are those of hostile symbols: a few bytes that refer to each other can make gigabytes.
    private static let limits = (depth: 256, length: 1 << 14, steps: 1 << 18)

    /// Nil if the symbol is damaged.
    static func name(of symbol: String) -> String? {
        var path = Self(symbol: Array(symbol.utf8.dropFirst(2)))
        do throws(Damaged) { try path.readPath() } catch { return nil }
        return path.name
    }

    private init(symbol: [UInt8]) { self.symbol = symbol }

    // MARK: Paths and types

    private mutating func readPath() throws(Damaged) {
        try enter()
        defer { depth -= 1 }
        switch try next() {
        case "C": write(try readIdentifier().name)
        case "N": try readMember()
        case "M":
            try skipImplementation()
            try readType()
        case "X":
            try skipImplementation()
            try readTraitOfType()
        case "Y": try readTraitOfType()
        case "I":
            try readPath()
            try skip { path throws(Damaged) in
                while !path.isAt("E") { try path.skipArgument() }
            }
        case "B": try readReference { path throws(Damaged) in try path.readPath() }
        default: throw Damaged()
        }
    }

    /// A function, type or module in another: `shop::cart`, `shop::load::{closure#0}`.
    private mutating func readMember() throws(Damaged) {
        let kind = try next()
        try readPath()
        let (member, number) = try readIdentifier()
        switch kind {
        case "C": write("::{closure#\(number)}")
        case "S": write("::{shim:\(member)#\(number)}")
        default: if !member.isEmpty { write("::\(member)") }
        }
    }

    private mutating func readTraitOfType() throws(Damaged) {
        write("<")
        try readType()
        write(" as ")
        try readPath()
        write(">")
    }

    /// Where the implementation stands in the source, which the name does not say.
    private mutating func skipImplementation() throws(Damaged) {
        _ = try readDisambiguator()
        try skip { path throws(Damaged) in try path.readPath() }
    }

    private static let basicTypes: [Character: String] = [
        "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
        "l": "i32", "m": "u32", "n": "i128", "o": "u128", "s": "i16", "t": "u16", "u": "()", "v": "...", "x": "i64",
        "y": "u64", "z": "!", "p": "_",
    ]

    private mutating func readType() throws(Damaged) {
        try enter()
        defer { depth -= 1 }
        let kind = try next()
        if let basic = Self.basicTypes[kind] { return write(basic) }
        switch kind {
        case "R", "Q", "P", "O":
            if isAt("L") { _ = try readNumber() }
            write(["R": "&", "Q": "&mut ", "P": "*const ", "O": "*mut "][kind] ?? "")
            try readType()
        case "A", "S":
            write("[")
            try readType()
            write("]")
            if kind == "A" { try skipConstant() }
        case "T":
            write("(")
            var separator = ""
            while !isAt("E") {
                write(separator)
                try readType()
                separator = ", "
            }
            write(")")
        case "F":
            write("fn")
            try skip { path throws(Damaged) in try path.skipSignature() }
        case "D": try readTraitObject()
        case "B": try readReference { path throws(Damaged) in try path.readType() }
        default:
            position -= 1
            try readPath()
        }
    }

    private mutating func skipSignature() throws(Damaged) {
        if isAt("G") { _ = try readNumber() }
        _ = isAt("U")
        if isAt("K"), !isAt("C") { _ = try readIdentifier() }
        while !isAt("E") { try readType() }
        try readType()
    }

    private mutating func readTraitObject() throws(Damaged) {
        write("dyn")
        if isAt("G") { _ = try readNumber() }
        var separator = " "
        while !isAt("E") {
            write(separator)
            try readPath()
            while isAt("p") {
                _ = try readIdentifier()
                try skip { path throws(Damaged) in try path.readType() }
            }
            separator = " + "
        }
        guard isAt("L") else { throw Damaged() }
        _ = try readNumber()
    }

    // MARK: What is not in the name

    private mutating func skipArgument() throws(Damaged) {
        if isAt("L") {
            _ = try readNumber()
        } else if isAt("K") {
            try skipConstant()
        } else {
            try readType()
        }
    }

    private mutating func skipConstant() throws(Damaged) {
        try enter()
        defer { depth -= 1 }
        switch try next() {
        case "p": break
        case "B": _ = try readNumber()
        case "R", "Q": try skipConstant()
        case "A", "T": while !isAt("E") { try skipConstant() }
        case "V":
            try skip { path throws(Damaged) in try path.readPath() }
            try skipFields()
        case let kind where Self.basicTypes[kind] != nil: while try next() != "_" {}
        default: throw Damaged()
        }
    }

    private mutating func skipFields() throws(Damaged) {
        switch try next() {
        case "U": break
        case "T": while !isAt("E") { try skipConstant() }
        case "S":
            while !isAt("E") {
                _ = try readIdentifier()
                try skipConstant()
            }
        default: throw Damaged()
        }
    }

    private mutating func skip(_ read: (inout Self) throws(Damaged) -> Void) throws(Damaged) {
        let wasNamed = isNamed
        isNamed = false
        defer { isNamed = wasNamed }
        try read(&self)
    }

    // MARK: Parts

    /// A name, and the number that tells it from others of the same name.
    private mutating func readIdentifier() throws(Damaged) -> (name: String, number: UInt64) {
        let number = try readDisambiguator()
        _ = isAt("u")
        let length = try readLength()
        _ = isAt("_")
        guard length <= symbol.count - position else { throw Damaged() }
        defer { position += length }
        return (String(decoding: symbol[position..<position + length], as: UTF8.self), number)
    }

    private mutating func readDisambiguator() throws(Damaged) -> UInt64 { isAt("s") ? try readNumber() &+ 1 : 0 }

    /// Reads what another place of the symbol says.
    private mutating func readReference(_ read: (inout Self) throws(Damaged) -> Void) throws(Damaged) {
        let start = position - 1
        guard let target = Int(exactly: try readNumber()), target < start else { throw Damaged() }
        guard isNamed else { return }
        let end = position
        position = target
        try read(&self)
        position = end
    }

    private mutating func readLength() throws(Damaged) -> Int {
        // No other digit follows a zero: `00` are the names of two closures, one in the other.
        if isAt("0") { return 0 }
        var length = 0
        let first = position
        while position < symbol.count, (0x30...0x39).contains(symbol[position]) {
            guard length <= symbol.count else { throw Damaged() }
            length = length * 10 + Int(symbol[position] - 0x30)
            position += 1
        }
        guard position > first else { throw Damaged() }
        return length
    }

    /// A number to the base of 62, one less than what is meant, and then an underscore; the underscore alone is zero. The hash of a
    /// crate may have more bits than the number, and is not used.
    private mutating func readNumber() throws(Damaged) -> UInt64 {
        if isAt("_") { return 0 }
        var number: UInt64 = 0
        while !isAt("_") { number = number &* 62 &+ (try readDigit()) }
        return number &+ 1
    }

    private mutating func readDigit() throws(Damaged) -> UInt64 {
        let character = try next()
        guard let digit = Self.digits.firstIndex(of: character) else { throw Damaged() }
        return UInt64(digit)
    }

    private static let digits = Array("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

    private mutating func enter() throws(Damaged) {
        depth += 1
        guard depth <= Self.limits.depth, name.utf8.count <= Self.limits.length else { throw Damaged() }
    }

    private mutating func next() throws(Damaged) -> Character {
        steps += 1
        guard position < symbol.count, steps <= Self.limits.steps else { throw Damaged() }
        defer { position += 1 }
        return Character(Unicode.Scalar(symbol[position]))
    }

    /// Steps over the character if it is the next one.
    private mutating func isAt(_ character: Character) -> Bool {
        guard position < symbol.count, Character(Unicode.Scalar(symbol[position])) == character else { return false }
        position += 1
        return true
    }

    private mutating func write(_ text: String) {
        if isNamed { name += text }
    }
}
