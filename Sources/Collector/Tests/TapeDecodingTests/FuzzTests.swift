import Foundation
import StallReading
import StallReports
import StallStore
import Testing

/// Where the decoder of the tape and the reports' own decoder do not agree about a document.
enum Difference: Hashable {
    case accepts(String)
    case anotherValue
    case anotherReason(String, String)

    /// Nil if they agree: they accept the document with equal values, or refuse it with the same words.
    init?(of bytes: [UInt8]) {
        let thorough = Result { () throws(ReportError) in try ArrivedDocument.thoroughly(bytes) }
        let both = Result { () throws(ReportError) in try ArrivedDocument(json: bytes) }
        switch (thorough, both) {
        case (.success(.stall(let report)), .success(.outline(let outline))):
            guard ArrivedOutline(report) != outline else { return nil }
            self = .anotherValue
        case (.success(let one), .success(let other)):
            guard one.needed != other.needed || one.withoutTexts != other.withoutTexts else { return nil }
            self = .anotherValue
        case (.failure(let error), .success): self = .accepts("\(error)")
        case (.failure(let one), .failure(let other)) where "\(one)" == "\(other)": return nil
        case (.success, .failure(let error)): self = .anotherReason("", "\(error)")
        case (.failure(let one), .failure(let other)): self = .anotherReason("\(one)", "\(other)")
        }
    }
}

extension ArrivedDocument {
    /// What a store keeps of a stall.
    fileprivate var needed: StallOutline? {
        if case .stall(let report) = self { StallOutline(report) } else { nil }
    }

    /// Without what the tape's decoder leaves out.
    fileprivate var withoutTexts: ArrivedDocument {
        guard case .stall(var report) = self else { return self }
        for stack in report.stacks.indices {
            let (frames, callers) = (report.stacks[stack].frames, report.stacks[stack].async?.frames ?? [])
            report.stacks[stack].frames = frames.map(\.withoutTexts)
            report.stacks[stack].async?.frames = callers.map(\.withoutTexts)
        }
        return .stall(report)
    }
}

extension StallReport.Frame {
    fileprivate var withoutTexts: Self {
        var frame = self
        (frame.kind, frame.function, frame.symbol, frame.file, frame.foundBy) = (nil, nil, nil, nil, nil)
        return frame
    }
}

@Suite("Random documents are accepted and refused as the reports' own decoder does")
struct FuzzTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().path + "/../../../.."
    private static let environment = ProcessInfo.processInfo.environment
    private static let isLong = environment["TEST_ALL"] != nil

    /// Compares documents that the schemas permit, the same ones damaged, and the same ones with fragments that a parser could mistake.
    ///
    /// - Returns: How many of them the tape decided.
    private static func compare(_ rounds: Int) throws -> (quick: Int, all: Int) {
        let seed = environment["TEST_SEED"].flatMap { UInt64($0) } ?? .random(in: 1...1_000_000_000)
        print("seed: \(seed)")
        let samplers = try Samplers(root + "/config")
        var (quick, all) = (0, 0)
        for round in 0..<rounds {
            var dice = Dice(seed: seed &+ UInt64(round))
            let whole = (dice.happens(1, in: 4) ? samplers.run : samplers.report).document(&dice, isShort: true)
            for bytes in [whole, Mutator.broken(whole, &dice), Fragments.inserted(into: whole, &dice)] {
                if ArrivedDocument.quickly(bytes) != nil { quick += 1 }
                all += 1
                if let difference = Difference(of: bytes) {
                    Issue.record(
                        "seed \(seed), round \(round): \(difference): \(String(decoding: bytes, as: UTF8.self))"
                    )
                }
            }
        }
        return (quick, all)
    }

    @Test("A few hundred documents")
    func some() throws {
        let (quick, all) = try Self.compare(100)
        // All that the schemas permit, and some of the others.
        #expect(quick > all / 4 && quick < all)
    }

    @Test("The form of reports has all members that the schema permits")
    func members() throws {
        let samplers = try Samplers(Self.root + "/config")
        let count = Self.isLong ? 500 : 150
        var checked = 0
        for seed in 1...count {
            var dice = Dice(seed: UInt64(seed))
            switch ArrivedDocument.quickly(samplers.report.document(&dice, isShort: true)) {
            case .outline: checked += 1
            case .stall: Issue.record("seed \(seed): the report is decoded, because the form lacks something")
            default: break
            }
        }
        #expect(checked > count / 2)
    }

    @Test("Each value of a report is replaced by one of another type, and left out")
    func values() throws {
        let samplers = try Samplers(Self.root + "/config")
        // Together they have nearly all members that the schema permits.
        for seed in 1...UInt64(Self.isLong ? 200 : 8) {
            var dice = Dice(seed: seed)
            let whole = samplers.report.document(&dice, isShort: true)
            let document = try JSONSerialization.jsonObject(with: Data(whole), options: .fragmentsAllowed)
            for other in Replacement.all(of: document) {
                let bytes = [UInt8](try JSONSerialization.data(withJSONObject: other, options: .sortedKeys))
                if let difference = Difference(of: bytes) {
                    Issue.record("seed \(seed): \(difference): \(String(decoding: bytes, as: UTF8.self))")
                }
            }
        }
    }

    @Test(
        "A hundred thousand documents",
        .enabled(if: isLong, "a long form: scripts/test --all")
    )
    func many() throws {
        let (quick, all) = try Self.compare(33_000)
        #expect(quick > all / 4 && quick < all)
    }
}

/// Documents that differ from another one by one value.
enum Replacement {
    private static var values: [Any] {
        [
            NSNull(), true, 7, -1, 1 << 40, 1.5, "x", "", "0x1f", "2026-02-30T00:00:00.000000000Z", [Any](), [7],
            [String: Any](), ["x": "y"],
        ]
    }

    static func all(of value: Any) -> [Any] {
        if let object = value as? [String: Any] {
            return object.flatMap { name, member -> [Any] in
                (values + all(of: member)).map { new in object.merging([name: new]) { $1 } }
                    + [object.filter { $0.key != name }]
            } + [object.merging(["new": 7]) { $1 }]
        }
        if let list = value as? [Any] {
            return list.indices.prefix(2).flatMap { place -> [Any] in
                (values + all(of: list[place])).map { new in
                    var list = list
                    list[place] = new
                    return list
                }
            }
        }
        return []
    }
}

/// Pieces of JSON about which parsers differ.
enum Fragments {
    private static let texts = [
        #"\u0000"#, #"\ud800"#, #"\ud83d\ude00"#, #"\udc00\ud800"#, #"\u00"#, #"\/"#, #"\'"#, "\u{FEFF}", "\u{212A}",
        "e\u{301}",
    ]
    private static let numbers = [
        "-0", "0.0", "-0.0", "1E5", "1e+5", "1e-5", "00", "1.", ".1", "1e", "0e0", "1e308", "1e309", "2e-324", "1e-324",
        "1e-99999",
        "9007199254740993", "0.1e1", "18446744073709551615", "123456789012345678901234567890", "1.7976931348623159e308",
        "Infinity",
        "-", "--1", "0x10", "1_000", "007",
    ]
    private static let bytes: [[UInt8]] = [
        [0], [0x0b], [0x7f], [0xff], [0xc2], [0xe2, 0x80], [0xed, 0xa0, 0x80], [0xc0, 0x80],
    ]

    /// The document with a fragment in place of a number, beside a quotation mark, or anywhere.
    static func inserted(into document: [UInt8], _ dice: inout Dice) -> [UInt8] {
        var copy = document
        let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
        switch dice.below(3) {
        case 0:
            let starts = document.indices.dropFirst().filter {
                digits.contains(document[$0]) && document[$0 - 1] == UInt8(ascii: ":")
            }
            guard !starts.isEmpty else { return copy }
            let start = dice.pick(starts)
            let end = document[start...].firstIndex { !digits.contains($0) } ?? document.endIndex
            copy.replaceSubrange(start..<end, with: dice.pick(numbers).utf8)
        case 1:
            let quotes = document.indices.filter { document[$0] == UInt8(ascii: "\"") }
            copy.insert(contentsOf: dice.pick(texts).utf8, at: dice.pick(quotes) + dice.below(2))
        default:
            copy.insert(contentsOf: dice.pick(bytes), at: dice.below(document.count))
        }
        return copy
    }
}
