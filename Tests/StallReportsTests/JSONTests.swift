import FoundationEssentials
import Glibc
import TestSupport
import Testing

@testable import StallReading
@testable import StallReports

/// Our encoder and decoder beside Foundation's.
@Suite("JSON, compared with Foundation's")
struct JSONTests {
    @Test(
        "the same bytes are written: reports and run records, texts with every escape, numbers, and nested containers"
    )
    func encodesTheSame() throws {
        try expectSame(Sample.recovered())
        try expectSame(Sample.starved())
        try expectSame(Sample.run())
        let texts =
            (0..<0x300).compactMap { Unicode.Scalar($0).map { String($0) } }
            + ["a/b", "\u{2028}", "e\u{301}", "😀", "\u{ffff}"]
        try expectSame(texts)
        try expectSame(Dictionary(texts.map { ($0, 1) }) { first, _ in first })
        let numbers = [
            0, -0.0, 1.5, 1e15, 1e16, 1e20, 1e-5, .leastNonzeroMagnitude, .greatestFiniteMagnitude, 0.1,
            123_456_789.125,
        ]
        try expectSame(numbers)
        try expectSame(numbers.map { Float($0) }.filter(\.isFinite))
        try expectSame([Int64.min, .max])
        try expectSame([UInt64.max])
        try expectSame([Int?.none, 3])
        try expectSame([[Int]](arrayLiteral: [], [1]))
        try expectSame([[String: Bool]](arrayLiteral: [:], ["b": true, "a": false]))
        try expectSame(Nested())
    }

    @Test("a number that JSON does not have is not written", arguments: [Double.infinity, .nan])
    func refusesNumber(_ number: Double) {
        #expect(throws: ReportError.self) { try ReportJSON.encode([number]) }
    }

    @Test("the same values are read, and the same are refused", arguments: documents)
    func decodesTheSame(_ document: String) {
        let bytes = Array(document.utf8)
        let theirs = try? JSONDecoder().decode(Every.self, from: Data(bytes))
        let ours = try? Every(from: JSONDecoding(ParsedJSON(bytes)))
        #expect(theirs == ours)
    }

    // Foundation accepts these, or does not look at them in a member that it does not need.
    @Test(
        "what is not JSON is refused, also in a member that is not read",
        arguments: [
            #"{"int":1,}"#, #"{"x":01}"#, #"{"x":1.}"#, #"{"x":1e}"#, #"{"x":"\q"}"#, #"{"x":"\u00"}"#,
            "{\"x\":\"\n\"}",
        ]
    )
    func refusesOtherGrammar(_ document: String) {
        #expect(throws: DecodingError.self) { try ParsedJSON(Array(document.utf8)) }
    }

    @Test("a whole number that is written as a fraction or with an exponent is read exactly, or refused")
    func readsWholeNumbers() {
        let numbers: [(String, Int64?)] = [
            ("9007199254740993.0", 9_007_199_254_740_993), ("-9007199254740993.00e0", -9_007_199_254_740_993),
            ("9.223372036854775807e18", .max), ("-9.223372036854775808E+18", .min), ("92233720368547758070e-1", .max),
            ("9.223372036854775808e18", nil), ("92233720368547758.7", nil), ("1.0000000000000001", nil),
            ("0.0e-5", 0), ("0.001e3", 1), ("120e-1", 12), ("12e-1", nil), ("1e-1", nil), ("1e99", nil),
            ("1e99999999999999999999", nil), ("1e-99999999999999999999", nil),
        ]
        for (number, value) in numbers {
            let read = try? ReportJSON.decode(Array("[\(number)]".utf8)) as [Int64]
            #expect(read?.first == value, "\(number)")
        }
    }

    @Test("bytes that are not UTF-8 are refused")
    func refusesOtherEncoding() {
        #expect(throws: DecodingError.self) { try ParsedJSON(Array(#"{"text":""#.utf8) + [0xff] + Array(#""}"#.utf8)) }
    }

    @Test("a type finds in its decoder what it is given")
    func passesUserInfo() throws {
        struct Told: Decodable {
            let text: String?
            init(from decoder: any Decoder) { text = decoder.userInfo[.told] as? String }
        }
        let read = try ReportJSON.decode([Told].self, from: Array("[0,{}]".utf8), userInfo: [.told: "x"])
        #expect(read.map(\.text) == ["x", "x"])
    }

    @Test("a dictionary of any size is read, the first of two members of one name")
    func readsLargeDictionary() throws {
        let names = (0..<1000).map { "name \($0)" }
        let text = "{" + (names + names).enumerated().map { "\"\($1)\":\($0)" }.joined(separator: ",") + "}"
        let read: [String: Int] = try ReportJSON.decode(Array(text.utf8))
        #expect(read == Dictionary(uniqueKeysWithValues: names.enumerated().map { ($1, $0) }))
    }

    @Test("an error's path has the index of each element, which is found in the same time in an array of any length")
    func findsElement() throws {
        let error = #expect(throws: ReportError.self) { try ReportJSON.decode(Array("[[],[0,[1],2]]".utf8)) as [[Int]] }
        #expect(error?.detail == "[1][1] has the wrong type")
        let whole = #expect(throws: ReportError.self) { try StallReport(json: Array("[{}]".utf8)) }
        #expect(whole?.detail == "the document has the wrong type")
        // An error is made for each element, because a number is tried first.
        func processorTime(of count: Int) throws -> Duration {
            let text = Array(("[" + Array(repeating: #""a""#, count: count).joined(separator: ",") + "]").utf8)
            let start = threadTime()
            let read: [NumberOrText] = try ReportJSON.decode(text)
            #expect(read.count == count)
            return threadTime() - start
        }
        // 25 times as many. Looking through the elements before each one took some hundred times as long.
        let short = try processorTime(of: 2000)
        let long = try processorTime(of: 50_000)
        #expect(long < short * 100)
    }

    @Test("members whose names have escapes are found, beside long names with escapes")
    func readsEscapedNames() throws {
        let name = String(repeating: #"\u0061"#, count: 20_000)
        let unknown = (0..<60).map { "\"\(name)\($0)\":0" }.joined(separator: ",")
        let read: Every = try ReportJSON.decode(Array("{\(unknown),\"i\\u006et\":7,\"text\":\"\"}".utf8))
        #expect(read == Every(int: 7, text: ""))
    }

    @Test("of a hundred accents on a letter all are read, of a thousand the first 128: hashing them would take long")
    func limitsAccents() throws {
        let accents = ["\u{301}", "\u{323}"]
        func name(_ count: Int) -> String { "e" + (0..<count).map { accents[$0 % 2] }.joined() }
        let escaped = #"e"# + String(repeating: #"\u0301\u0323"#, count: 500)
        let (few, many) = (name(100), name(1000))
        for text in [few, many, escaped] {
            let document = Array(#"{"text":"\#(text)","map":{"\#(text)":"x"}}"#.utf8)
            let read: Every = try ReportJSON.decode(document)
            let expected = text == few ? few : name(128)
            #expect(read.text.map { Array($0.utf8) } == Array(expected.utf8))
            #expect(read.map?.keys.map { Array($0.utf8) } == [Array(expected.utf8)])
            #expect(read.map?.values.first == "x")
        }
        // The reader of outlines leaves such a text to the parser.
        func members(_ text: String) -> JSONMembers? { JSONMembers(Array("{\"a\":\"\(text)\"}".utf8)) }
        #expect(try members(few)?.text("a") == few)
        #expect(throws: JSONMembers.Irregular.self) { try members(many)?.text("a") }
    }

    @Test("damaged documents are read as Foundation reads them, or refused; no byte stops the process")
    func survivesDamage() {
        var random = SplitMix64.ofThisRun()
        let replacements = Array("{}[]\":,0123456789eE+-.tfnu\\ \n\u{1}".utf8)
        for _ in 0..<20_000 {
            var bytes = Array((Self.documents.randomElement(using: &random) ?? "{}").utf8)
            guard let place = bytes.indices.randomElement(using: &random) else { continue }
            bytes[place] = replacements.randomElement(using: &random) ?? 0
            if Bool.random(using: &random) { bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random)) }
            guard let ours = try? Every(from: JSONDecoding(ParsedJSON(bytes))) else { continue }
            guard let theirs = try? JSONDecoder().decode(Every.self, from: Data(bytes)) else { continue }
            #expect(ours == theirs, "\(String(decoding: bytes, as: UTF8.self))")
        }
    }

    static let documents =
        ["int", "small", "unsigned"].flatMap { name in
            [
                "1", "1.0", "1e2", "1.5", "-0", "2.50e1", "127", "128", "-128", "-129", "300", "9223372036854775807",
                "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
                "18446744073709551616", "1e18", "1e19", "-1", "true", "null", "\"1\"", "01", "+1", "1.", ".5", "-",
                "1e",
                "0x10", "NaN",
            ].map { "{\"\(name)\":\($0)}" }
        }
        + ["1", "0.1", "-0.0", "1e400", "123456789012345678901234567890", "\"1\""].map { "{\"double\":\($0)}" }
        + [
            #""""#, #""\n\t\b\f\r\/\\\"""#, #""\u0041\u00e9\u4e2d""#, #""\ud83d\ude00""#, #""\ud83d""#, #""\ude00""#,
            #""\ud83dx""#, #""\ud83d\u0041""#, #""\x""#, #""\u00g0""#, #""\u00""#, "\"a\u{1}\"", "'a'", "\"é😀\"",
        ].map { "{\"text\":\($0)}" }
        + [
            "{}", "[]", "1", "null", "", " ", "{", "nul", " { } ", "{\"flag\":tru}", "{\"flag\":truex}", "{int:1}",
            "{,}", "{\"int\" 1}", "{\"int\":1 \"text\":\"\"}", "{\"int\":1}{", "{\"int\":1}}", "{\"int\":1}\n\n",
            "{\"map\":{\"\u{e9}\":\"y\",\"e\u{301}\":\"z\"}}", #"{"map":{"\u00e9":"y","e\u0301":"z","a":"b"}}"#,
            "\u{feff}{\"int\":1}", "{\"int\":1,\"int\":2}", #"{"\u0069nt":7}"#, "{\"list\":[1,null,2]}",
            "{\"list\":[1,[2]]}", "{\"map\":{\"x\":\"y\",\"x\":\"z\"}}", "{\"map\":[]}", "{\"inner\":[{},{\"int\":4}]}",
            "{\"inner\":[{}", "{\"int\":1\u{0}}", "[{\"int\":1}]",
        ]
}

/// The processor time of this thread, which does not depend on what else runs.
private func threadTime() -> Duration {
    var time = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}

private func expectSame(_ value: some Encodable) throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let theirs = String(decoding: try encoder.encode(value), as: UTF8.self) + "\n"
    #expect(String(decoding: try ReportJSON.encode(value), as: UTF8.self) == theirs)
}

private struct Every: Decodable, Equatable {
    var int: Int?
    var small: Int8?
    var unsigned: UInt64?
    var double: Double?
    var text: String?
    var flag: Bool?
    var list: [Int?]?
    var map: [String: String]?
    var inner: [Every]?
}

private struct NumberOrText: Decodable {
    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if (try? container.decode(Int.self)) == nil { _ = try container.decode(String.self) }
    }
}

/// Containers that are filled in turns.
private struct Nested: Encodable {
    enum CodingKeys: String, CodingKey { case list, object }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        var object = container.nestedContainer(keyedBy: CodingKeys.self, forKey: .object)
        var list = container.nestedUnkeyedContainer(forKey: .list)
        try list.encode(1)
        try object.encode(2, forKey: .object)
        var inner = list.nestedUnkeyedContainer()
        try inner.encode("z")
        try list.encodeNil()
        try object.encodeNil(forKey: .list)
        try 5.encode(to: container.superEncoder())
    }
}

extension CodingUserInfoKey {
    fileprivate static let told = CodingUserInfoKey(rawValue: "told")!
}
