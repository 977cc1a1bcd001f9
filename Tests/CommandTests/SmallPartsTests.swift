import Foundation
import StallReports
import Testing

@testable import stall_monitor

@Suite("Text table")
struct TextTableTests {
    @Test("it fits by shrinking the columns that may shrink, in their order, to their minimum")
    func fits() {
        var table = TextTable([.init(title: "A"), .init(title: "B", minimum: 4), .init(title: "C", minimum: 3)])
        table.append(["aaaa", "bbbbbbbb", "cccccc"])
        func lines(_ width: Int?) -> [String] { table.lines(width: width).map(\.plain) }
        #expect(lines(nil) == ["A     B         C", "aaaa  bbbbbbbb  cccccc"])
        #expect(lines(20) == ["A     B       C", "aaaa  bbbbb…  cccccc"])
        #expect(lines(16) == ["A     B     C", "aaaa  bbb…  ccc…"])
        #expect(lines(5) == ["A   …", "aaaa…"])
    }

    @Test("a very wide column is cut before a narrow one, though that may be cut to less, and is of lower rank")
    func wide() {
        var table = TextTable([.init(title: "LABEL", minimum: 5, rank: 1), .init(title: "CULPRIT", minimum: 20)])
        let (label, culprit) = (String(repeating: "l", count: 20), String(repeating: "c", count: 102))
        table.append([StyledText(label), StyledText(culprit)])
        func row(_ width: Int) -> String { table.lines(width: width)[1].plain }
        #expect(row(124) == "\(label)  \(culprit)")
        #expect(row(100) == "\(label)  \(culprit.prefix(77))…")
        #expect(row(60) == "\(label.prefix(9))…  \(culprit.prefix(47))…")
        #expect(row(40) == "\(label.prefix(4))…  \(culprit.prefix(32))…")
    }

    @Test("a column without a value is left out first, then those of low rank")
    func leavesOut() {
        var table = TextTable([.init(title: "A"), .init(title: "B", rank: 1), .init(title: "C", rank: 2)])
        table.append(["aaaa", "bbbb", ""])
        #expect(table.lines(width: 11).map(\.plain) == ["A     B", "aaaa  bbbb"])
        var hiding = TextTable([
            .init(title: "A"), .init(title: "B", rank: 1, hidesEmpty: true), .init(title: "C", rank: 2),
        ])
        hiding.append(["aaaa", "", ""])
        #expect(hiding.lines(width: 80).map(\.plain) == ["A     C", "aaaa  "])
        #expect(hiding.lines(width: nil).map(\.plain) == ["A     B  C", "aaaa     "])
        hiding.append(["aaaa", "b", ""])
        #expect(hiding.lines(width: 80).map(\.plain) == ["A     B  C", "aaaa     ", "aaaa  b  "])
        table.append(["aaaa", "bbbb", "c"])
        #expect(table.lines(width: 11).map(\.plain) == ["A     C", "aaaa  ", "aaaa  c"])
    }

    @Test("wide characters count double, combining accents do not count")
    func widths() {
        #expect(StyledText("数据").width == 4 && StyledText("⚡ ✅ ▶ →").width == 9)
        #expect(StyledText("e\u{301}a").width == 2)
        #expect(StyledText("数据库").truncated(to: 4).plain == "数…")
        #expect(StyledText("abc").truncated(to: 0).plain == "")
    }
}

@Suite("Small parts")
struct SmallPartsTests {
    @Test("JSON on a terminal has control and invisible characters as escapes, which programs read as the same text")
    func jsonText() throws {
        let name = "a\u{7F}b\u{9B}31m\u{202E}c\u{E0001}é😀"
        let text = try JSONText.of([name])
        #expect(text == #"["a\u007fb\u009b31m\u202ec\udb40\udc01é😀"]"#)
        #expect(try JSONDecoder().decode([String].self, from: Data(text.utf8)) == [name])
    }

    @Test("stalls that are only counted since another day are listed with the date")
    func repeatsSince() throws {
        let noon = try #require(Timestamp(rfc3339: "2026-11-18T12:00:00Z"))
        let repeats = StallReport.Repeats(
            count: 37,
            report: nil,
            firstAt: noon,
            lastAt: noon,
            totalNs: 0,
            longestNs: 0
        )
        let texts = ([1, 3 * 86_400] as [Int64]).map { repeats.short(noon.advanced(byNanoseconds: $0 * 1_000_000_000)) }
        #expect(texts == ["×37 since \(noon.timeOfDay)", "×37 since \(noon.withoutYear.dropLast(3))"])
        #expect(texts.map(\.count) == [15, 21])
    }

    @Test("short ids: eight characters, or as many as needed to be unique")
    func shortIDs() {
        #expect(ShortIDs([]).length == 8)
        let base = ULID(rawValue: 1 << 100)
        #expect(ShortIDs([base, base]).length == 8)
        #expect(ShortIDs([base, ULID(rawValue: base.rawValue + 1)]).length == 26)
        let ids = (0..<100).map { _ in ULID.make() }
        let short = ShortIDs(ids)
        #expect(Set(ids.map(short.short)).count == 100)
    }

    @Test("short ids on a terminal: of ids that differ only at their end, the beginning and the end")
    func elidedIDs() {
        let ids = [1 << 100, 1 << 100 + 1, 1 << 101].map { ULID(rawValue: $0) }
        let short = ShortIDs(ids, elides: true)
        #expect(ids.map(short.short) == ["00000100…000000", "00000100…000001", "00000200"] && short.width == 15)
        let shown = ids.prefix(2).map { StallLine.lines(Sample.report(id: $0), isFirst: false, width: 200)[0].plain }
        #expect(shown.map { String($0.suffix(15)) } == ["00000100…000000", "00000100…000001"], "in tail and watch")
    }

    @Test(
        "JSON escapes characters that a terminal obeys; the value stays the same",
        arguments: ["\u{7F}", "\u{9B}", "\u{202E}", "\u{E0041}"]
    )
    func jsonText(text: String) throws {
        var report = Sample.report()
        report.metadata = ["k": "ä\(text)\"\\"]
        let json = try JSONText.of(report)
        #expect(!json.commandsTerminal)
        #expect(json.contains("ä"))
        #expect(try StallReport(json: Array(json.utf8)) == report)
    }
}
