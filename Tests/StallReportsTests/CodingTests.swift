import StallReports
import TestSupport
import Testing

@Suite("Report JSON")
struct CodingTests {
    @Test("a report and a run record are the same after encoding and decoding, on one line each")
    func roundTrips() throws {
        let (report, run) = (Sample.recovered(), Sample.run())
        #expect(try StallReport(json: report.json()) == report)
        #expect(try RunRecord(json: run.json()) == run)
        #expect(try report.json().filter { $0 == UInt8(ascii: "\n") }.count == 1)
        #expect(try report.json() == report.json())
    }

    @Test("names from a later version are kept; unknown keys do no harm")
    func forwardCompatible() throws {
        let bytes = try edited(#""kind":"blocked","#, #""kind":"melted","new":{"list":[1,{}]},"#)
        let report = try StallReport(json: bytes)
        #expect(report.kind == StallKind(rawValue: "melted"))
        #expect(try String(decoding: report.json(), as: UTF8.self).contains(#""kind":"melted""#))
    }

    @Test(
        "a wrong or missing value is named by its path and never quoted",
        arguments: [
            (#""thread":{"id":4711"#, #""thread":{"id":"x""#, "stacks[0].thread.id has the wrong type"),
            (#""started_at":"2026-11-18T"#, #""started_at":"last year"#, "started_at has an impossible value"),
            (#""culprit":{"frame":1"#, #""culprit":{"frame":true"#, "culprit.frame has the wrong type"),
            (#""fingerprint":"v2:"#, #""fingerprint":"V2:"#, "fingerprint has an impossible value"),
            (#""tick_ns":50000000,"#, "", "rule.tick_ns is missing"),
            (#""tick_ns":50000000"#, #""tick_ns":5e99"#, "rule.tick_ns has an impossible value"),
            (#""region":"eu""#, #""secret-token":1"#, "metadata has the wrong type"),
            (#""stacks":["#, #""stacks":[7,"#, "stacks[0] has the wrong type"),
        ]
    )
    func namesPath(old: String, new: String, detail: String) throws {
        let bytes = try edited(old, new)
        #expect(throws: ReportError(.malformed, detail: detail)) { try StallReport(json: bytes) }
    }

    @Test("a document of another schema is refused")
    func refusesOtherSchema() throws {
        let bytes = try edited("stall-report/1", "stall-report/2")
        let detail = "its schema is 'stall-report/2', expected stall-report/1"
        #expect(throws: ReportError(.unsupportedSchema, detail: detail)) { try StallReport(json: bytes) }
        let other = "its schema is 'stall-report/1', expected stall-run/1"
        #expect(throws: ReportError(.unsupportedSchema, detail: other)) {
            try RunRecord(json: Sample.recovered().json())
        }
        // Its name may be hostile.
        let hostile = try edited("stall-report/1", #"\u001b[2J"# + String(repeating: "x", count: 1000))
        let error = #expect(throws: ReportError.self) { try StallReport(json: hostile) }
        let name = #"\u{1B}[2Jxxx"#
        #expect(error?.detail?.hasPrefix("its schema is '\(name)") == true && error?.description.count ?? 999 < 300)
    }

    @Test("every truncation of a report is torn, never half a report")
    func everyCutIsTorn() throws {
        let bytes = try Sample.recovered().json()
        for length in 0..<bytes.count - 2 {
            #expect(throws: ReportError(.torn)) { try StallReport(json: Array(bytes[..<length])) }
        }
    }

    @Test("zero bytes, as a crash leaves them, are torn; garbage is malformed")
    func zerosAndGarbage() {
        #expect(throws: ReportError(.torn)) { try StallReport(json: [UInt8](repeating: 0, count: 4096)) }
        for text in ["garbage", "{}]", "}", "[1]", #""text""#, "{\"a\":\u{1}}", "null"] {
            let error = #expect(throws: ReportError.self) { try StallReport(json: Array(text.utf8)) }
            #expect(error?.code == .malformed, "\(text)")
        }
    }

    @Test("nesting of any depth is refused without recursion, quotes and escapes considered")
    func refusesDepth() {
        let deep = Array(String(repeating: "[", count: 5_000_000).utf8)
        #expect(throws: ReportError(.tooDeep)) { try StallReport(json: deep) }
        let inString = #"{"schema":"\"[[[[\\"#.utf8 + deep + #""}"#.utf8
        let error = #expect(throws: ReportError.self) { try StallReport(json: Array(inString)) }
        #expect(error?.code == .unsupportedSchema)
    }

    @Test("a text that ends with a backslash ends at its quotation mark")
    func endsAfterBackslash() throws {
        let report = try StallReport(json: edited(#""region":"eu""#, #""region":"C:\\""#))
        #expect(report.metadata["region"] == #"C:\"#)
    }

    @Test("random damage of single bytes never crashes the reader")
    func survivesDamage() throws {
        let whole = try Sample.recovered().json()
        var readable = 0
        var random = SplitMix64.ofThisRun()
        for _ in 0..<2000 {
            var bytes = whole
            bytes[Int.random(in: bytes.indices, using: &random)] = .random(in: 0...255, using: &random)
            if (try? StallReport(json: bytes)) != nil { readable += 1 }
        }
        #expect(readable < 2000)
    }
}

/// A sample's JSON with one text replaced.
private func edited(_ old: String, _ new: String) throws -> [UInt8] {
    let text = String(decoding: try Sample.recovered().json(), as: UTF8.self)
    try #require(text.contains(old))
    return Array(text.replacing(old, with: new, maxReplacements: 1).utf8)
}
