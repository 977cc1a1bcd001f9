import Foundation
import StallGate
import StallReading
import StallReports
import Testing

@Suite("Gate formats", .timeLimit(.minutes(10)))
struct FormatTests {
    private static let id = ULID(rawValue: 5)

    private func result(function: String = "shop.Cart.total()", ms: Int64 = 612, torn: Bool = false) -> GateResult {
        var contents = ReportReader.Contents()
        contents.reports = [Sample.report(id: Self.id, ms: ms, function: function)]
        contents.runs = [Sample.run()]
        contents.failures = torn ? [ReportError(.torn, path: "/r/stall.json")] : []
        return Gate.judge(.success(contents), by: Budget(maxStalls: 0, maxDurationNs: 500_000_000))
    }

    @Test("text: the verdict first, then its reasons")
    func text() {
        #expect(
            result().text == """
                over budget: 1 stall, 59s watched in 1 run
                  over budget: 1 stall, 0 permitted
                  over budget: 00000000000000000000000005 612ms in shop.Cart.total() on main (on_cpu, v1:0123456789abcdef), \
                500ms permitted

                """
        )
        #expect(result(ms: 400).text.contains("  stall: 00000000000000000000000005 400ms in shop.Cart.total()"))
        #expect(result(torn: true).text.hasPrefix("cannot judge: 1 stall"))
    }

    @Test("text and JUnit show no control character of a report")
    func hostileNames() {
        let hostile = result(function: "\u{1B}[2J\u{202E}f\u{0}\u{FFFE}<script>&\"'\n")
        for text in [hostile.text, hostile.junit()] {
            #expect(
                !text.unicodeScalars.contains { $0.value < 32 && $0 != "\n" || $0 == "\u{202E}" || $0 == "\u{FFFE}" }
            )
            #expect(text.contains(#"\u{1B}[2J\u{202E}f\u{0}"#))
        }
    }

    @Test("text: without a stack it says why, in the words of lists; without a name, too, that the code is unknown")
    func withoutStack() {
        var contents = clean
        let late = "the thread did not stop in time"
        let cases: [(String?, String)] = [
            ("not_stopped: \(late): look at the load", "no stack: \(late)"), (nil, "unknown code"),
        ]
        for (error, text) in cases {
            var report = Sample.report(id: Self.id)
            report.culprit = nil
            report.stacks = [
                .init(thread: report.thread, capturedAt: report.startedAt, complete: false, error: error)
            ]
            contents.reports = [report]
            let page = Gate.judge(.success(contents), by: Budget(maxStalls: 0)).text
            #expect(page.contains(" 612ms in \(text) on main ("), "\(page)")
            #expect(StallOutline(report).culpritText == text)
        }
    }

    @Test("JSON has the same findings")
    func json() throws {
        let value = try JSONSerialization.jsonObject(with: Data(result(torn: true).json())) as? [String: Any]
        let object = try #require(value)
        #expect(object["verdict"] as? String == "cannot_judge")
        #expect(object["stall_count"] as? Int == 1)
        #expect((object["stalls"] as? [[String: Any]])?.first?["result"] as? String == "too_long")
        #expect((object["doubts"] as? [[String: Any]])?.first?["code"] as? String == "torn")
    }

    @Test("JSON has every limit of the budget that is set, and no other")
    func limits() throws {
        func keys(_ budget: Budget) throws -> Set<String> {
            let json = try Gate.judge(.success(ReportReader.Contents()), by: budget).json()
            let object = try JSONSerialization.jsonObject(with: Data(json)) as? [String: Any]
            return Set(try #require(object?["budget"] as? [String: Any]).keys)
        }
        var budget = Budget(maxStalls: 1, maxDurationNs: 2)
        #expect(try keys(budget) == ["allowed", "max_stalls", "max_duration_ns"])
        (budget.limits.maxPerHour, budget.limits.maxBlockedPercent) = (3, 4)
        (budget.limits.maxTurnP99Ns, budget.limits.maxTurnNs) = (5, 6)
        #expect(try keys(budget).count == 7)
    }

    @Test("SARIF: each result has a location, without which GitHub rejects the file; the others are notifications")
    func sarif() throws {
        func run(_ result: GateResult) throws -> (results: [[String: Any]], notifications: [String]) {
            let bytes = try result.sarif(sourceRoot: "/src", version: "1")
            let file = try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any]
            let run = try #require((file?["runs"] as? [[String: Any]])?.first)
            let invocation = try #require((run["invocations"] as? [[String: Any]])?.first)
            let notifications = try #require(invocation["toolExecutionNotifications"] as? [[String: Any]])
            let results = try #require(run["results"] as? [[String: Any]])
            return (results, notifications.compactMap { ($0["message"] as? [String: String])?["text"] })
        }
        let without = try run(result(ms: 400))
        #expect(without.results.isEmpty)
        #expect(without.notifications == ["shop.Cart.total() stalled: 1 stall, 0 permitted (v1:0123456789abcdef)"])
        var contents = clean
        contents.reports = [Sample.report(id: Self.id, ms: 400)]
        contents.reports[0].culprit?.file = "/src/Cart.swift"
        contents.reports[0].culprit?.line = 12
        let with = try run(Gate.judge(.success(contents), by: Budget(maxStalls: 0)))
        #expect(with.notifications.isEmpty && with.results.count == 1 && with.results[0]["locations"] != nil)
    }

    @Test("SARIF: each result's rule has the texts that GitHub's documentation requires")
    func sarifRules() throws {
        var contents = clean
        contents.reports = [Sample.report(id: Self.id, ms: 400)]
        contents.reports[0].culprit?.file = "/src/Cart.swift"
        contents.reports[0].culprit?.line = 12
        let bytes = try Gate.judge(.success(contents), by: Budget(maxStalls: 0)).sarif(sourceRoot: "/src", version: "1")
        let file = try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any]
        let run = try #require((file?["runs"] as? [[String: Any]])?.first)
        let driver = (run["tool"] as? [String: Any])?["driver"] as? [String: Any]
        let rules = try #require(driver?["rules"] as? [[String: Any]])
        #expect(rules.compactMap { $0["id"] as? String } == ["stall_count"])
        for key in ["shortDescription", "fullDescription", "help"] {
            #expect((rules[0][key] as? [String: String])?["text"]?.isEmpty == false, "\(key)")
        }
    }

    @Test("JUnit: well-formed for xmllint, whatever the names contain; failures are counted")
    func junit() throws {
        let hostile = result(function: "\u{1B}[2J<a b=\"'&]]>\u{0}\u{FFFF}<\u{338}&\u{301}", torn: true).junit()
        let xml = try Xmllint(hostile)
        #expect(xml.isWellFormed)
        #expect(try xml.string("string(/testsuites/@failures)") == "2")
        #expect(try xml.string("string(//testsuite/@errors)") == "1")
        #expect(try xml.string("count(//testcase[failure])") == "2")
        #expect(
            try xml.string("string(//testcase[@name='length of stalls']/failure)").contains(
                #"<a b="'&]]>\u{0}\u{FFFF}"#
            )
        )
        let passed = Gate.judge(.success(clean), by: Budget(maxStalls: 0)).junit()
        #expect(try Xmllint(passed).string("count(//failure|//error)") == "0")
        #expect(try !Xmllint("<a>&b</a>").isWellFormed)
    }

    @Test(
        "Markdown: a job summary stays below GitHub's mebibyte, however long the names are, and says how much it leaves out"
    )
    func summarySize() throws {
        var contents = ReportReader.Contents()
        contents.runs = [Sample.run()]
        contents.reports = (0..<500).map { number in
            let fault = "v1:" + String(repeating: "0", count: 13) + String(number + 256, radix: 16)
            var report = Sample.report(fingerprint: fault, function: String(repeating: "<", count: 160))
            report.culprit?.file = String(repeating: "&", count: 1000)
            report.culprit?.line = 1
            return report
        }
        let text = Gate.judge(.success(contents), by: Budget(maxStalls: 0)).markdown(sourceRoot: "/")
        #expect(text.utf8.count < 1 << 20 && text.utf8.count > 400_000, "\(text.utf8.count)")
        let rows = text.split(separator: "\n").count { $0.hasPrefix("| stall") }
        #expect(text.contains("\n\(500 - rows) more are left out.\n"), "\(rows) rows")
    }

    @Test("HTML and Markdown have the lines about stalls that the text has, escaped; without any there is no list")
    func stallsOfPages() throws {
        for ms in [400, 612] as [Int64] {
            let result = result(function: "<f>|", ms: ms)
            let (markdown, html) = (result.markdown(sourceRoot: "/"), result.html(sourceRoot: "/"))
            let (word, end) = ms == 400 ? ("stall", "") : ("over budget", ", 500ms permitted")
            #expect(
                markdown.contains(
                    "\n- \(word): 00000000000000000000000005 \(ms)ms in &#60;f&#62;&#124; on main (on&#95;cpu, v1:0123456789abcdef)\(end)\n"
                ),
                "\(markdown)"
            )
            #expect(
                html.contains(
                    "\n<li>\(word): 00000000000000000000000005 \(ms)ms in &lt;f&gt;| on main (on_cpu, v1:0123456789abcdef)\(end)</li>\n</ul>\n"
                ),
                "\(html)"
            )
            #expect(try Xmllint(html.replacing("<!DOCTYPE html>\n", with: "")).isWellFormed)
        }
        let page = Gate.judge(.success(clean), by: Budget(maxStalls: 0)).html(sourceRoot: "/")
        #expect(!page.contains("<ul>") && !page.contains("<table>") && page.contains("<h1>within budget"), "\(page)")
        var contents = clean
        contents.reports = (0..<25).map { Sample.report(fingerprint: String(format: "v1:%016x", $0), ms: 400) }
        let many = Gate.judge(.success(contents), by: Budget(maxStalls: 0)).markdown(sourceRoot: "/")
        #expect(many.split(separator: "\n").count { $0.hasPrefix("- stall: ") } == 21)
        #expect(many.contains("\n- stall: … 5 more faults; "), "\(many)")
    }

    @Test("text: a budget's finding names its faults, three at most; of allowed ones ten are shown")
    func faultsOfBudget() {
        var contents = clean
        contents.reports = (0..<15).map { number in
            let fault = String(format: "v1:%04x000000000000", number)
            return Sample.report(fingerprint: fault, ms: 900 - Int64(number), function: "work\(number)()")
        }
        var budget = Budget()
        budget.rules = [BudgetRule(name: "all", limits: .init(maxStalls: 0))]
        let over = Gate.judge(.success(contents), by: budget).text
        let named = """
              over budget: all: 15 stalls, 0 permitted
                  in work0() (v1:0000000000000000)
                  in work1() (v1:0001000000000000)
                  in work2() (v1:0002000000000000)
                  … 12 more faults; 'stall-monitor faults' shows all

            """
        #expect(over.contains(named), "\(over)")
        budget.rules = [BudgetRule(name: "all", limits: .init(), severity: .off)]
        let allowed = Gate.judge(.success(contents), by: budget).text
        #expect(allowed.contains("\n  allowed: … 5 more faults; 'stall-monitor faults' shows all\n"), "\(allowed)")
    }

    @Test("Of very many faults, text and JUnit show the first ten thousand, and how many there are")
    func manyStalls() {
        var contents = clean
        contents.reports = (0..<10_003).map {
            Sample.report(id: ULID(rawValue: UInt128($0)), fingerprint: String(format: "v1:%016x", $0))
        }
        let result = Gate.judge(.success(contents), by: Budget(maxStalls: 0, maxDurationNs: 500_000_000))
        let more = "… 3 more faults; 'stall-monitor faults' shows all\n"
        let lines = result.text.split(separator: "\n")
        #expect(result.text.contains(more) && lines.count < 10_010)
        #expect(lines.first?.hasPrefix("over budget: 10003 stalls") == true && lines.first == lines.last)
        // For the number of stalls and for their length.
        #expect(result.junit().split(separator: "\n").count < 20_030)
    }

    private var clean: ReportReader.Contents {
        var contents = ReportReader.Contents()
        contents.runs = [Sample.run()]
        return contents
    }
}

/// libxml2's XML parser, as an independent check.
private struct Xmllint {
    let text: String

    init(_ text: String) throws {
        self.text = text
        try #require(
            FileManager.default.isExecutableFile(atPath: "/usr/bin/xmllint"),
            "xmllint is missing: apt-get install libxml2-utils"
        )
    }

    var isWellFormed: Bool { (try? run(["--noout"]).status) == 0 }

    func string(_ xpath: String) throws -> String {
        try run(["--xpath", xpath]).output.trimmingCharacters(in: .newlines)
    }

    private func run(_ arguments: [String]) throws -> (status: Int32, output: String) {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/xmllint")
        process.arguments = arguments + ["-"]
        let (input, output) = (Pipe(), Pipe())
        (process.standardInput, process.standardOutput) = (input, output)
        process.standardError = FileHandle.nullDevice
        try process.run()
        try input.fileHandleForWriting.write(contentsOf: Data(text.utf8))
        try input.fileHandleForWriting.close()
        let data = try output.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return (process.terminationStatus, String(decoding: data, as: UTF8.self))
    }
}
