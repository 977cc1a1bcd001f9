/// Identifies the fault of a stall: equal on every host, in every run, and in every build that keeps the functions' names,
/// whatever changed in lines, addresses and optimisation.
///
/// A version and sixteen hexadecimal digits: `v2:8a0d3d4acbfa9be8`. Made by ``make(kind:frames:modules:executable:source:)``,
/// which documents its inputs. Fingerprints of other versions are read and written, and are equal to none of this version.
public struct Fingerprint: Hashable, Sendable {
    /// The whole text, with its version.
    public let rawValue: String

    /// The version computed here. `v1` used the symbols unchanged, so each way of compiling a function gave another fingerprint.
    static let version = "v2"

    /// Nil unless it is a version (`v` and digits), a colon, and sixteen lower-case hexadecimal digits.
    public init?(rawValue: String) {
        // `v`, one to three digits, `:`, sixteen digits.
        let text = rawValue.utf8
        guard (19...21).contains(text.count), text.first == UInt8(ascii: "v") else { return nil }
        let colon = text.count - 17
        for (place, byte) in text.enumerated().dropFirst() {
            switch place {
            case ..<colon: guard Self.decimalDigits.contains(byte) else { return nil }
            case colon: guard byte == UInt8(ascii: ":") else { return nil }
            default: guard Self.decimalDigits.contains(byte) || Self.hexLetters.contains(byte) else { return nil }
            }
        }
        self.rawValue = rawValue
    }

    init(digest: UInt64) {
        let digits = String(digest, radix: 16)
        rawValue = "\(Self.version):" + String(repeating: "0", count: 16 - digits.utf8.count) + digits
    }

    private static let decimalDigits = UInt8(ascii: "0")...UInt8(ascii: "9")
    private static let hexLetters = UInt8(ascii: "a")...UInt8(ascii: "f")
}

extension Fingerprint: CustomStringConvertible {
    /// The whole text, as in JSON.
    public var description: String { rawValue }
}

extension Fingerprint: TextForm {
    static let form = "a fingerprint like v1:0123456789abcdef"
    static func parse(_ text: String) -> Fingerprint? { Fingerprint(rawValue: text) }
}

extension Fingerprint: Codable {
    /// Decodes a JSON string that ``init(rawValue:)`` accepts; throws for anything else.
    public init(from decoder: any Decoder) throws {
        self = try decoder.decodeText()
    }

    /// Writes a JSON string: `rawValue`.
    public func encode(to encoder: any Encoder) throws {
        try encoder.encodeText(rawValue)
    }
}

extension Fingerprint {
    /// A function by its source name.
    public struct SourceName: Hashable, Sendable {
        /// The same however it was compiled.
        public var name: String
        /// For a closure, the enclosing functions, the innermost first.
        public var enclosing: [String]
        /// Whether the name contains its module, so that the file is not needed.
        public var isQualified: Bool
        /// Whether a compiler may inline it into its caller although it is not an own function: the standard library's, and
        /// compiler-generated code.
        public var isTransparent: Bool

        /// Creates a name, by default of a plain function that is not inlined.
        public init(
            _ name: String,
            enclosing: [String] = [],
            isQualified: Bool = false,
            isTransparent: Bool = false
        ) {
            (self.name, self.enclosing) = (name, enclosing)
            (self.isQualified, self.isTransparent) = (isQualified, isTransparent)
        }
    }

    /// Makes the fingerprint of a stall. Pure: the same input gives the same value in every process.
    ///
    /// FNV-1a (64 bit) over the kind and the names of four functions at most, each followed by a zero byte:
    /// 1. the culprit: the first frame that is `own`;
    /// 2. the next three own functions outwards, each once, including awaiting and inlined ones.
    ///
    /// What makes fingerprints the same for all builds:
    /// - A function is represented by its source name: a specialisation, part, clone or copy of it is the same function. Its
    ///   file is included if the name does not contain the module (C): the base name without a version (`libfoo.so.6.1` is
    ///   `libfoo.so`).
    /// - A closure that runs inside its enclosing function counts as that function, if only own code and the standard library's
    ///   is in between: a compiler may inline these. A closure that a library stores and calls later is a function of its own.
    /// - A recursion is one step of the path, however deep it is and whichever of its functions is the innermost.
    /// - If no function is own (no symbols, or only C and C++), the frames in the executable count, otherwise all. A frame
    ///   without a symbol is represented by its build id and its function's start, or without that by its place.
    ///
    /// Not included: what the culprit calls, and why it is stalled (load turns `on_cpu` into `starved`, and one function may
    /// alternately wait and compute); any address, line, thread, host or time. Inlined functions are known from debug
    /// information only, so a build that was stripped of it can have different fingerprints. So has a script's function without a
    /// name after an edit further up: it is represented by its line and column, because nothing else distinguishes it from others.
    ///
    /// Without any frame only the kind is left, so all stalls of that kind whose capture failed count as the same.
    ///
    /// - Parameters:
    ///   - frames: From the culprit outwards.
    ///   - executable: The path of the process's executable.
    ///   - source: Maps a symbol to its source function.
    public static func make(
        kind: StallKind,
        frames: [StallReport.Frame],
        modules: [StallReport.Module],
        executable: String? = nil,
        source: (String) -> SourceName = { SourceName($0) }
    ) -> Fingerprint {
        let path = FaultPath(frames: frames, modules: modules, executable: executable, source: source)
        return Fingerprint(digest: fnv1a(([kind.rawValue] + path.names).flatMap { Array($0.utf8) + [0] }))
    }
}

/// The hash of Fowler, Noll and Vo, 64 bit, variant 1a: fixed, unlike the standard library's seeded one.
func fnv1a(_ bytes: some Sequence<UInt8>) -> UInt64 {
    bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01b3 }
}
