import Foundation
import StallReports
import StallStore
import TapeDecoding
import Testing

@Suite("Documents are decoded from simdjson's tape as the reports' own decoder decodes them")
struct TapeDecodingTests {
    private static let report: String = {
        let moment = Timestamp(seconds: 1_700_000_000)
        let frame = StallReport.Frame(address: 0x7f12, module: 0, function: "total()", own: true)
        let report = StallReport(
            kind: .blocked,
            startedAt: moment,
            detectedAt: moment,
            durationNs: 7,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .init(name: "web1"),
            process: .init(pid: 7),
            watched: .init(label: "main"),
            thread: .init(id: 7),
            cause: .init(verdict: .onCPU, summary: "SUMMARY"),
            stacks: [.init(thread: .init(id: 7), capturedAt: moment, frames: [frame])],
            fingerprint: .make(kind: .blocked, frames: [frame], modules: []),
            metadata: ["key": "value"]
        )
        return (try? report.json()).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }()

    private static func with(_ old: String, _ new: String) -> [UInt8] {
        #expect(report.contains(old))
        return Array(report.replacing(old, with: new).utf8)
    }

    /// - Parameter isQuick: Whether the tape decides. Otherwise the reports' own decoder does.
    private static func check(_ bytes: [UInt8], isQuick: Bool, _ what: String) {
        #expect((ArrivedDocument.quickly(bytes) != nil) == isQuick, "\(what)")
        #expect(Difference(of: bytes) == nil, "\(what)")
    }

    @Test("Reports and run records as monitors write them are decoded from the tape")
    func usual() throws {
        Self.check(Array(Self.report.utf8), isQuick: true, "a report")
        let run = RunRecord(
            startedAt: .now(),
            updatedAt: .now(),
            host: .init(name: "web1"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        Self.check(try run.json(), isQuick: true, "a run record")
        Self.check(Array(Self.report.replacing(",", with: " ,\n\t\r ").utf8), isQuick: true, "blanks")
    }

    @Test(
        "Texts: escapes are decoded; half a surrogate pair, a wrong escape or a control character is left to the other decoder"
    )
    func texts() {
        let texts: [(String, Bool)] = [
            ("", true), ("é 日本 \u{1F600}", true), (#"\"\\\/\b\f\n\r\t"#, true), (#"\u0041\u00e9\u65e5"#, true),
            (#"\u0000"#, true), (#"a\u002fb"#, true), (#"\ud83d\ude00"#, true), (#"\ud83d"#, false),
            (#"\ud83dx"#, false), (#"\ud83d\u0041"#, false), (#"\ude00x"#, false), (#"\ude00\ud83d"#, false),
            (#"\u12"#, false), (#"\x41"#, false), (#"\u00g0"#, false), ("a\nb", false), ("a\u{1F}", false),
            ("\u{7F}", true), (#"\"#, false),
        ]
        for (text, isQuick) in texts {
            // At each place of a block that is read at once.
            for length in 0...65 {
                let padded = String(repeating: "x", count: length) + text
                Self.check(Self.with("SUMMARY", padded), isQuick: isQuick, padded)
            }
        }
    }

    @Test("Long texts and names that may have too many accents are left to the other decoder")
    func accents() {
        for (count, isQuick) in [(100, true), (1000, false)] {
            let text = "e" + String(repeating: "\u{301}\u{323}", count: count / 2)
            Self.check(Self.with("SUMMARY", text), isQuick: isQuick, "\(count) accents")
            Self.check(Self.with(#"{"key":"value"}"#, #"{"\#(text)":"x"}"#), isQuick: isQuick, "\(count) in a name")
        }
        Self.check(Self.with("SUMMARY", String(repeating: "x", count: 1000)), isQuick: true, "a long text in ASCII")
    }

    @Test("UTF-8 that is not valid is left to the other decoder, also where nothing is decoded")
    func encoding() {
        let wrong: [[UInt8]] = [
            [0x80], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe6, 0x97], [0xff],
        ]
        let text = Self.report.replacing(#"{"cause""#, with: #"{"unknown":"UNKNOWN","cause""#)
        for bytes in wrong {
            for place in ["SUMMARY", "UNKNOWN"] {
                let parts = text.split(separator: place).map { Array($0.utf8) }
                #expect(parts.count == 2)
                Self.check(parts[0] + bytes + parts[parts.count - 1], isQuick: false, "\(bytes)")
            }
        }
    }

    @Test("Numbers: whole ones in the range of their type are decoded from the tape")
    func numbers() {
        let numbers: [(String, Bool)] = [
            ("0", true), ("9223372036854775807", true), ("-1", true), ("-9223372036854775808", true), ("-0", true),
            ("9223372036854775808", false), ("18446744073709551616", false), ("-9223372036854775809", false),
            ("01", false), ("1.0", false), ("1e3", false), ("1.", false), (".5", false), ("+1", false), ("-", false),
            ("0x1", false), ("1e999", false), ("NaN", false), ("\"1\"", false), ("null", false), ("true", false),
            ("1 2", false), (String(repeating: "9", count: 400), false),
        ]
        for (number, isQuick) in numbers {
            Self.check(Self.with(#""duration_ns":7"#, #""duration_ns":\#(number)"#), isQuick: isQuick, number)
        }
        for (number, isQuick) in [("2147483647", true), ("2147483648", false), ("-2147483648", true)] {
            Self.check(Self.with(#""pid":7"#, #""pid":\#(number)"#), isQuick: isQuick, number)
        }
    }

    private struct Numbers: Decodable, Equatable {
        var large: UInt64?
        var small: UInt8?
        var fraction: Double?
        var list: [Int64?]?
    }

    @Test("Numbers of other types are decoded if they fit, also beside null")
    func types() throws {
        let documents: [(String, Bool)] = [
            (#"{"large":18446744073709551615}"#, true), (#"{"large":-1}"#, false), (#"{"small":255}"#, true),
            (#"{"small":256}"#, false), (#"{"fraction":0.1}"#, true), (#"{"fraction":-1.5e-300}"#, true),
            (#"{"fraction":7}"#, true), (#"{"fraction":9007199254740993}"#, true),
            (#"{"fraction":18446744073709551615}"#, true), (#"{"fraction":1.7976931348623157e308}"#, true),
            (#"{"fraction":1.7976931348623159e308}"#, false), (#"{"fraction":1e-400}"#, false),
            (#"{"fraction":5e-324}"#, false), (#"{"fraction":"1"}"#, false), (#"{"large":null,"list":null}"#, true),
            (#"{"list":[]}"#, true), (#"{"list":[1,null,-2]}"#, true), (#"{"list":[1,"2"]}"#, false),
            (#"{"list":{}}"#, false), ("[]", false),
        ]
        for (json, isQuick) in documents {
            let quick = TapeDecoder.reading(Array(json.utf8)) { try? Numbers(from: $0) }
            #expect((quick != nil) == isQuick, "\(json)")
            if let quick { #expect(try JSONDecoder().decode(Numbers.self, from: Data(json.utf8)) == quick, "\(json)") }
        }
    }

    @Test("Of a name that occurs twice the first value counts; objects of very many are left to the other decoder")
    func names() {
        let members = [
            #""kei":"x""#, #""key":"x""#, #""k\u0065y":"x""#, #""é":"x","e\#u{301}":"y""#, #""":"x""#,
            #""":"x","":"y""#,
        ]
        for member in members {
            Self.check(Self.with(#"{"key":"value"}"#, #"{"key":"value",\#(member)}"#), isQuick: true, member)
        }
        Self.check(Self.with(#"{"key":"value"}"#, #"{"key":"value","key":7}"#), isQuick: true, "a number, not first")
        Self.check(Self.with(#"{"key":"value"}"#, #"{"key":7,"key":"value"}"#), isQuick: false, "a number, first")
        Self.check(Self.with(#"{"cause""#, #"{"kind":"blocked","cause""#), isQuick: true, "a kind twice")
        Self.check(Self.with(#"{"cause""#, #"{"k\u0069nd":"waiting","cause""#), isQuick: true, "a kind with an escape")
        for (count, isQuick) in [(63, true), (64, false), (5000, false)] {
            let many = (0..<count).map { #","k\#($0)":"x""# }.joined()
            Self.check(
                Self.with(#"{"key":"value"}"#, #"{"key":"value"\#(many)}"#),
                isQuick: isQuick,
                "\(count + 1) members"
            )
        }
    }

    @Test("Frames: each member is read as its type says; what is missing or null is nil, or refused")
    func frames() {
        let others: [(String, Bool)] = [
            (#""offset":"0x0""#, true), (#""function_offset":"0xffffffffffffffff""#, true),
            (#""offset":"0xAbC""#, true),
            (#""offset":"0x""#, false), (#""offset":"0""#, false), (#""offset":"""#, false),
            (#""offset":"0X1""#, false),
            (#""offset":"0x12345678901234567""#, false), (#""offset":"0xg""#, false), (#""offset":"0x\u0031""#, true),
            (#""offset":1"#, false), (#""offset":null"#, true), (#""symbol":null,"symbol":7"#, true),
            (#""symbol":"s","symbol":7"#, true), (#""symbol":7"#, false), (#""symbol":"""#, true),
            (#""file":["x"]"#, false),
            (#""line":-9223372036854775808,"column":9223372036854775807"#, true),
            (#""line":9223372036854775808"#, false),
            (#""line":1.0"#, false), (#""line":"1""#, false), (#""column":null"#, true), (#""kind":"new""#, true),
            (#""kind":true"#, false), (#""found_by":"unwind_table""#, true), (#""found_by":{}"#, false),
            (#""unknown":{"own":7,"address":[]}"#, true), (#""ow\u006e":7"#, false),
        ]
        for (member, isQuick) in others {
            // Before the others, and so the first of its name.
            Self.check(Self.with(#"{"address""#, #"{\#(member),"address""#), isQuick: isQuick, member)
        }
        for (address, isQuick) in [(#""0x7F12""#, true), ("null", false), ("32530", false), (#""7f12""#, false)] {
            Self.check(Self.with(#""0x7f12""#, address), isQuick: isQuick, address)
        }
        for (own, isQuick) in [("false", true), ("null", false), ("1", false), (#""true""#, false)] {
            Self.check(Self.with(#""own":true"#, #""own":\#(own)"#), isQuick: isQuick, own)
        }
        for required in [#""own":"#, #""address":"#] {
            Self.check(Self.with(required, #""other":"#), isQuick: false, required)
        }
        for (frame, isQuick) in [("7,", false), ("null,", false), ("[],", false), ("{},", false), ("", true)] {
            Self.check(Self.with(#""frames":["#, #""frames":[\#(frame)"#), isQuick: isQuick, frame)
        }
        for (frames, isQuick) in [("[]", true), ("{}", false), ("null", false)] {
            Self.check(Self.with(#""frames":["#, #""frames":\#(frames),"others":["#), isQuick: isQuick, frames)
        }
        for (count, isQuick) in [(60, true), (65, false)] {
            let many = (0..<count).map { #""k\#($0)":1,"# }.joined()
            Self.check(Self.with(#"{"address""#, #"{\#(many)"address""#), isQuick: isQuick, "\(count) unknown members")
        }
    }

    @Test("A report as monitors write it is checked, and not decoded")
    func checked() {
        for text in [Self.report, Self.report.replacing(",", with: " , ")] {
            guard case .outline = ArrivedDocument.quickly(Array(text.utf8)) else { return #expect(Bool(false)) }
        }
    }

    @Test("Times and ids: what the form of most does not decide is decoded")
    func forms() {
        let moments: [(String, Bool)] = [
            ("2026-01-31T23:59:59.999999999Z", true), ("2026-02-28T00:00:00.000000000Z", true),
            ("2026-02-29T00:00:00.000000000Z", false), ("2024-02-29T00:00:00.000000000Z", true),
            ("2026-13-01T00:00:00.000000000Z", false), ("2026-00-01T00:00:00.000000000Z", false),
            ("2026-01-00T00:00:00.000000000Z", false), ("2026-01-01T24:00:00.000000000Z", false),
            ("2026-01-01T23:60:00.000000000Z", false), ("2026-01-01T23:59:60.000000000Z", true),
            ("2026-01-01T23:59:61.000000000Z", false), ("2026-01-01T00:00:00Z", true),
            ("2026-01-01t00:00:00.5+01:00", true), ("2026-01-01T00:00:00.00000000xZ", false),
            ("2026-01-01T00:00:00.000000000z", true), ("2026-01-01", false), ("", false),
        ]
        for (moment, isQuick) in moments {
            let text = Self.report.replacing(
                #""detected_at":"2023-11-14T22:13:20.000000000Z""#,
                with: #""detected_at":"\#(moment)""#
            )
            #expect(text != Self.report)
            Self.check(Array(text.utf8), isQuick: isQuick, moment)
        }
        let ids: [(String, Bool)] = [
            ("01M83EX2FG1Z3DJEMQEW4FSW00", true), ("01m83ex2fg1z3djemqew4fsw00", true),
            ("81M83EX2FG1Z3DJEMQEW4FSW00", false), ("01M83EX2FG1Z3DJEMQEW4FSW0", false),
            ("01M83EX2FG1Z3DJEMQEW4FSW0I", false), ("01M83EX2FG1Z3DJEMQEW4FSW0L", false),
            ("01M83EX2FG1Z3DJEMQEW4FSW0O", false), ("01M83EX2FG1Z3DJEMQEW4FSW0U", false),
            ("01M83EX2FG1Z3DJEMQEW4FSW0[", false), ("01M83EX2FG1Z3DJEMQEW4FSW0Z", true),
        ]
        for (id, isQuick) in ids {
            Self.check(Self.with(#"{"cause""#, #"{"run":"\#(id)","cause""#), isQuick: isQuick, id)
        }
    }

    @Test("Frames have no texts; a culprit without a name is named by its frame's place all the same")
    func outline() throws {
        let bytes = Self.with(
            #""modules":[]"#,
            #""modules":[{"path":"/srv/shop","load_base":"0x0"}],"culprit":{"stack":0,"frame":0}"#
        )
        Self.check(bytes, isQuick: true, "a culprit without a name")
        guard case .outline(let outline) = ArrivedDocument.quickly(bytes) else { return #expect(Bool(false)) }
        #expect(outline.culprit == "code at 0x7f12")
        // One that must be decoded, because it has a member that no report of this version has.
        let other = Array(
            String(decoding: bytes, as: UTF8.self).replacing(#"{"cause""#, with: #"{"new":7,"cause""#).utf8
        )
        Self.check(other, isQuick: true, "a new member")
        guard case .stall(let report) = ArrivedDocument.quickly(other) else { return #expect(Bool(false)) }
        #expect(report.stacks.first?.frames.first?.function == nil)
        #expect(report.culpritName == "code at 0x7f12")
    }

    @Test("What is too deep, too long, cut off or followed by something is left to the other decoder")
    func limits() {
        for (depth, isQuick) in [(60, true), (63, true), (64, false), (100_000, false)] {
            let nest = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
            Self.check(Self.with(#"{"cause""#, #"{"unknown":\#(nest),"cause""#), isQuick: isQuick, "depth \(depth + 1)")
        }
        for (count, isQuick) in [(250_000, true), (300_000, false)] {
            Self.check(Self.with("SUMMARY", String(repeating: "x", count: count)), isQuick: isQuick, "\(count) bytes")
        }
        let bytes = Array(Self.report.utf8.dropLast())
        for count in 0..<bytes.count { Self.check(Array(bytes[..<count]), isQuick: false, "the first \(count) bytes") }
        for rest in ["x", "{}", "\0", ",", "\u{FEFF}"] { Self.check(bytes + Array(rest.utf8), isQuick: false, rest) }
        Self.check(Array("\u{FEFF}".utf8) + bytes, isQuick: false, "a byte order mark")
        let others = ["", " ", "null", "[]", "{}", "7", "\"", "{", #"{"schema":7}"#, #"{"schema":"other"}"#]
        for json in others { Self.check(Array(json.utf8), isQuick: false, json) }
        Self.check(Self.with("stall-report/1", "stall-report/1.2"), isQuick: false, "a later version")
    }
}
