import CSimdjson
import Glibc
import Synchronization

// Safe: nothing is read beyond a document that simdjson accepted, nor after `reading` has returned.

/// A document parsed by simdjson. Its values follow each other on a tape (simdjson's `doc/tape.md`).
///
/// It counts no references: a decoder copies it hundreds of times for a report.
@safe struct JSONTape {
    /// A parser keeps 15 times the bytes of its longest document, so at most 4 MB.
    private static let maximumBytes = 1 << 18

    private let values: UnsafePointer<UInt64>
    private let texts: UnsafePointer<UInt8>

    /// Nil if it is not JSON, exceeds a limit, or has a number beyond 64 bits.
    ///
    /// - Parameter work: Must not keep the tape.
    static func reading<Value>(_ bytes: [UInt8], _ work: (JSONTape) -> Value?) -> Value? {
        guard bytes.count <= maximumBytes, let parser = Parser.takeUnused() ?? Parser(maximumBytes) else { return nil }
        defer { parser.putBack() }
        let isRead = unsafe bytes.withUnsafeBufferPointer { source in
            guard let start = source.baseAddress else { return false }
            return unsafe json_tape_parse(parser.tape, start, source.count)
        }
        guard isRead else { return nil }
        return work(unsafe JSONTape(values: json_tape_values(parser.tape), texts: json_tape_texts(parser.tape)))
    }

    // MARK: Values

    /// The first letter of a value, or what kind of number it is.
    struct Kind: Equatable {
        let letter: UInt8
        static let object = Kind(letter: UInt8(ascii: "{"))
        static let array = Kind(letter: UInt8(ascii: "["))
        static let text = Kind(letter: UInt8(ascii: "\""))
        static let yes = Kind(letter: UInt8(ascii: "t"))
        static let no = Kind(letter: UInt8(ascii: "f"))
        static let null = Kind(letter: UInt8(ascii: "n"))
        static let signed = Kind(letter: UInt8(ascii: "l"))
        static let unsigned = Kind(letter: UInt8(ascii: "u"))
        static let fraction = Kind(letter: UInt8(ascii: "d"))
    }

    /// The index of the outermost value.
    static let root = 1

    func kind(_ index: Int) -> Kind { Kind(letter: UInt8(truncatingIfNeeded: unsafe values[index] >> 56)) }

    /// The 64 bits of a number.
    func number(_ index: Int) -> UInt64 { unsafe values[index + 1] }

    /// In bytes. The reports' own decoder leaves accents out of longer texts if there are too many in a row: hashing them takes long.
    static let longestName = 256

    /// The text of a value, or of a member's name.
    func text(_ index: Int) -> String { unsafe String(decoding: bytes(index), as: UTF8.self) }

    /// - Throws: ``TapeDecoder/Irregular`` if it is no text, or a long one that may have accents: the first begins with the byte 0xcc.
    func string(_ index: Int) throws -> String {
        guard isShortText(index) else { throw TapeDecoder.Irregular() }
        return text(index)
    }

    /// Whether it is a text that the reports' own decoder does not shorten.
    func isShortText(_ index: Int) -> Bool {
        guard kind(index) == .text else { return false }
        let bytes = unsafe bytes(index)
        return unsafe bytes.count <= Self.longestName || !bytes.contains { $0 >= 0xcc }
    }

    /// The bytes of a text, which are valid UTF-8.
    func bytes(_ index: Int) -> UnsafeBufferPointer<UInt8> {
        let start = unsafe texts + Int(unsafe values[index] & 0xff_ffff_ffff_ffff)
        let count = unsafe UnsafeRawPointer(start).loadUnaligned(as: UInt32.self)
        return unsafe UnsafeBufferPointer(start: start + 4, count: Int(count))
    }

    /// The index of the value of an object's first member of this name. Nil if there is none.
    func member(_ name: String, of object: Int) -> Int? {
        var name = name
        return name.withUTF8 { name in
            var (index, end) = (object + 1, next(object) - 1)
            while index < end {
                let found = unsafe bytes(index)
                if found.count == name.count, unsafe isEqual(found, name) { return index + 1 }
                index = next(index + 1)
            }
            return nil
        }
    }

    /// The same for a name that is known to the compiler.
    func member(_ name: StaticString, of object: Int) -> Int? {
        var (index, end) = (object + 1, next(object) - 1)
        while index < end {
            if isName(index, name) { return index + 1 }
            index = next(index + 1)
        }
        return nil
    }

    /// Whether the text of a member's name is this one.
    func isName(_ index: Int, _ name: StaticString) -> Bool {
        let text = unsafe bytes(index)
        guard text.count == name.utf8CodeUnitCount, let start = text.baseAddress else { return false }
        return unsafe memcmp(start, name.utf8Start, text.count) == 0
    }

    /// Of two texts of the same length.
    private func isEqual(_ one: UnsafeBufferPointer<UInt8>, _ other: UnsafeBufferPointer<UInt8>) -> Bool {
        guard let start = one.baseAddress, let otherStart = other.baseAddress else { return true }
        return unsafe memcmp(start, otherStart, one.count) == 0
    }

    /// The index of the first value after this one and all that it contains.
    func next(_ index: Int) -> Int {
        switch kind(index) {
        case .object, .array: Int(unsafe values[index] & 0xffff_ffff)
        case .signed, .unsigned, .fraction: index + 2
        default: index + 1
        }
    }

    /// The number of members or elements, at most 16,777,215.
    func count(_ index: Int) -> Int { Int(unsafe values[index] >> 32 & 0xff_ffff) }
}

extension JSONTape {
    // Safe: this object owns the parser. Sendable: only the thread that made it, or took it from the unused ones, uses it.

    /// A parser with its memory. Some are kept.
    @safe private final class Parser: @unchecked Sendable {
        private static let kept = 4
        /// As deep as the reports' own decoder accepts.
        private static let maximumDepth = 64
        private static let unused = Mutex<[Parser]>([])

        let tape: OpaquePointer

        /// Nil if there is not enough memory.
        init?(_ maximumBytes: Int) {
            guard let tape = unsafe json_tape_create(maximumBytes, Self.maximumDepth) else { return nil }
            unsafe self.tape = tape
        }

        deinit { unsafe json_tape_free(tape) }

        static func takeUnused() -> Parser? { unused.withLock { $0.popLast() } }

        func putBack() {
            Self.unused.withLock { unused in
                if unused.count < Self.kept { unused.append(self) }
            }
        }
    }
}
