import Foundation
import StallExport
import StallReports
import Testing

@Suite("Exports of stacks")
struct StackFormatTests {
    @Test("A stack's weight is its share of the stall: all weights sum up to the blocked time")
    func weights() throws {
        let lines = try ExportSample.text(.collapsed).split(separator: "\n").map(String.init)
        #expect(
            lines == [
                "shop: main;main;total();price() 400000", "shop: worker;(no stack) 400000",
                "shop: main;main;total();tax() 200000",
            ]
        )
    }

    @Test("Loops of two services that have one label are not merged")
    func services() throws {
        let stack: [([StallReport.Frame], Int64?)] = [([ExportSample.frame("one")], 1)]
        var other = ExportSample.report(stack, milliseconds: 200)
        other.service = .init(name: "mail")
        let reports = [ExportSample.report(stack), other]
        #expect(try ExportSample.text(.collapsed, reports) == "shop: main;one 600000\nmail: main;one 200000\n")
        let file = try ExportSample.json(ExportSample.export(.speedscope, reports))
        let profiles = try #require(file["profiles"] as? [[String: Any]])
        #expect(profiles.map { $0["name"] as? String } == ["mail: main", "shop: main"])
    }

    @Test("Without times the number of captures is the weight, as on pages; an absurd time has none and does not trap")
    func uncounted() throws {
        let (one, other) = (ExportSample.frame("one"), ExportSample.frame("other"))
        let even = try ExportSample.text(.collapsed, [ExportSample.report([([one], nil), ([other], nil)])])
        #expect(even == "shop: main;one 300000\nshop: main;other 300000\n")
        var counted = ExportSample.report([([one], nil), ([other], nil)])
        counted.stacks[0].count = 3
        #expect(try ExportSample.text(.collapsed, [counted]) == "shop: main;one 450000\nshop: main;other 150000\n")
        let absurd = ExportSample.report(
            [([one], -5), ([other], Int64.max / 1_000_000)],
            milliseconds: Int64.max / 1_000_000
        )
        let text = try ExportSample.text(.collapsed, [absurd, absurd, absurd])
        #expect(text == "shop: main;other \(Int64.max / 1000)\nshop: main;one 0\n")
        for format in ExportFormat.allCases {
            #expect(throws: Never.self) { try ExportSample.export(format, [absurd, absurd]) }
        }
    }

    @Test("An awaiting function takes the executor's place; the gap of a deep stack is marked")
    func awaiting() throws {
        var report = ExportSample.report([
            ([ExportSample.frame("read"), ExportSample.frame("job"), ExportSample.frame("drain")], 1)
        ])
        report.stacks[0].async = .init(from: 1, frames: [ExportSample.frame("handler", own: true)], ends: .task)
        report.stacks[0].leftOut = .init(after: 1, count: 99)
        #expect(
            try ExportSample.text(.collapsed, [report]) == "shop: main;handler;job;… 99 frames left out;read 600000\n"
        )
        report.stacks[0].async?.from = -1
        #expect(try ExportSample.text(.collapsed, [report]) == "shop: main;drain;job;read 600000\n")
    }

    @Test("speedscope: samples refer to existing frames, weights sum up to the profile's length")
    func speedscope() throws {
        let file = try ExportSample.json(ExportSample.export(.speedscope))
        let frames = try #require((file["shared"] as? [String: Any])?["frames"] as? [[String: Any]])
        let profiles = try #require(file["profiles"] as? [[String: Any]])
        #expect(file["$schema"] as? String == "https://www.speedscope.app/file-format-schema.json")
        #expect(profiles.map { $0["name"] as? String } == ["shop: main", "shop: worker"])
        for profile in profiles {
            let samples = try #require(profile["samples"] as? [[Int]])
            let weights = try #require(profile["weights"] as? [Int])
            #expect(samples.count == weights.count && samples.joined().allSatisfy(frames.indices.contains))
            #expect(profile["endValue"] as? Int == weights.reduce(0, +))
            #expect(profile["type"] as? String == "sampled" && profile["unit"] as? String == "nanoseconds")
        }
        let names = try #require(profiles[0]["samples"] as? [[Int]]).map { $0.map { frames[$0]["name"] as? String } }
        #expect(names == [["main", "total()", "price()"], ["main", "total()", "tax()"]])
    }

    @Test("Firefox: a thread for each loop; a table's columns have one length and refer to existing rows")
    func firefox() throws {
        let file = try ExportSample.json(ExportSample.export(.firefox))
        #expect((file["meta"] as? [String: Any])?["preprocessedProfileVersion"] as? Int == 48)
        let threads = try #require(file["threads"] as? [[String: Any]])
        #expect(threads.map { $0["name"] as? String } == ["main", "worker"])
        for thread in threads {
            func column(_ table: String, _ name: String) -> [Int] {
                ((thread[table] as? [String: Any])?[name] as? [Any] ?? []).compactMap { $0 as? Int }
            }
            func rows(_ table: String) -> Range<Int> {
                0..<((thread[table] as? [String: Any])?["length"] as? Int ?? -1)
            }
            for table in ["samples", "markers", "stackTable", "frameTable", "funcTable", "resourceTable"] {
                let columns = (thread[table] as? [String: Any] ?? [:]).values.compactMap { $0 as? [Any] }
                #expect(columns.count > 2 && columns.allSatisfy { $0.count == rows(table).count }, "\(table)")
            }
            let strings = try #require(thread["stringArray"] as? [String])
            #expect(column("samples", "stack").allSatisfy(rows("stackTable").contains))
            #expect(column("stackTable", "frame").allSatisfy(rows("frameTable").contains))
            #expect(column("stackTable", "prefix").allSatisfy(rows("stackTable").contains))
            #expect(column("frameTable", "func").allSatisfy(rows("funcTable").contains))
            #expect(column("funcTable", "name").allSatisfy(strings.indices.contains))
            let times = try #require((thread["samples"] as? [String: Any])?["time"] as? [Double])
            #expect(times == times.sorted())
        }
        let weights = try #require((threads[0]["samples"] as? [String: Any])?["weight"] as? [Double])
        #expect(abs(weights.reduce(0, +) - 600) < 0.001)
    }

    @Test("Firefox: each process has a number of its own and one main thread, so that no loop is hidden")
    func firefoxProcesses() throws {
        var other = ExportSample.reports[1]
        other.host.name = "web2"
        let file = try ExportSample.json(ExportSample.export(.firefox, ExportSample.reports + [other]))
        let threads = try #require(file["threads"] as? [[String: Any]])
        #expect(threads.map { $0["pid"] as? String } == ["7", "7", "7.1"])
        #expect(threads.map { $0["isMainThread"] as? Bool } == [true, false, true])
    }

    @Test(
        "pprof: its own tool finds the functions, their times and the labels",
        .enabled(if: Tool.exists("go"), "go is not installed: apt-get install golang-go")
    )
    func pprof() throws {
        let file = try Tool.File(ExportSample.export(.pprof), suffix: "pb")
        let raw = try Tool.run("go", ["tool", "pprof", "-raw", file.path])
        #expect(raw.status == 0)
        for part in [
            "stalls/count blocked/nanoseconds[dflt]", "price() Sources/Shop/Cart.swift:3", "label:[main]",
            "service:[shop]", "verdict:[on_cpu]",
        ] {
            #expect(raw.output.contains(part), "\(part) in \(raw.output)")
        }
        let top = try Tool.run("go", ["tool", "pprof", "-top", "-unit", "ms", "-tagfocus", "label=main", file.path])
        #expect(top.output.contains("File: shop"))
        #expect(top.output.contains("400ms 40.00% 40.00%      400ms 40.00%  price()"), "\(top.output)")
    }

    @Test(
        "The picture is well-formed, and the page holds all its data, whatever the names contain",
        .enabled(if: Tool.exists("xmllint"), "xmllint is missing: apt-get install libxml2-utils")
    )
    func pictures() throws {
        let hostile = ExportSample.report(
            [([ExportSample.frame(ExportSample.hostile, own: true)], 1)],
            label: ExportSample.hostile,
            culprit: ExportSample.hostile
        )
        let picture = try Tool.File(ExportSample.export(.svg, [hostile] + ExportSample.reports), suffix: "svg")
        #expect(try Tool.run("xmllint", ["--noout", picture.path]).status == 0)

        let page = try ExportSample.text(.html, [hostile])
        #expect(page.components(separatedBy: "</script>").count == 3)
        let data = page.components(separatedBy: #"id="data">"#)[1].components(separatedBy: "</script>")[0]
        let graph = try #require(try ExportSample.json(Data(data.utf8))["graph"] as? [String: Any])
        #expect(graph["t"] as? Int == 600_000_000)
    }

    @Test("What a format escapes is escaped also where it joins a letter or an accent", arguments: [true, false])
    func joined(isLetter: Bool) throws {
        let name = { (mark: String) in isLetter ? "\u{D4E}" + mark : mark + "\u{338}" }
        func bytes(_ format: ExportFormat, _ mark: String) throws -> [UInt8] {
            let report = ExportSample.report([([ExportSample.frame(name(mark))], 1)], label: name(mark))
            return Array(try ExportSample.export(format, [report]))
        }
        func escapes(_ format: ExportFormat, _ mark: String, as escape: String) throws -> Bool {
            let (text, wanted) = (try bytes(format, mark), Array(name(escape).utf8))
            return text.indices.contains { text[$0...].starts(with: wanted) }
        }
        #expect(try escapes(.svg, "<", as: "&lt;") && escapes(.svg, "&", as: "&amp;"))
        #expect(try escapes(.html, "<", as: "\\u003c"))
        #expect(try escapes(.prometheus, "\"", as: "\\\"") && escapes(.prometheus, "\\", as: "\\\\"))
        #expect(try escapes(.csv, "\"", as: "\"\"") && escapes(.collapsed, ";", as: ":"))
        #expect(try bytes(.csv, ",").count { $0 == UInt8(ascii: "\"") } == 2)
    }

    @Test("In a flame graph a function is one box, whatever its lines")
    func merged() throws {
        let data = try ExportSample.text(.html).components(separatedBy: #"id="data">"#)[1].components(
            separatedBy: "</script>"
        )[0]
        var level = try #require(try ExportSample.json(Data(data.utf8))["graph"] as? [String: Any])
        var names: [String] = []
        while let children = level["c"] as? [[String: Any]], let first = children.first {
            names.append("\(first["n"] ?? "") \(first["t"] ?? "") of \(children.count)")
            level = first
        }
        #expect(
            names == [
                "shop: main 600000000 of 2", "main 600000000 of 1", "total() 600000000 of 1", "price() 400000000 of 2",
            ]
        )
    }

    @Test("A stall counts once for a stack, although its captures had other addresses")
    func once() throws {
        var report = ExportSample.report([
            ([ExportSample.frame("main")], 1), ([ExportSample.frame("main")], 2), ([ExportSample.frame("other")], 3),
        ])
        report.stacks[1].frames[0].address = 0x99
        var stacks = WeightedStacks()
        stacks.add(report)
        #expect(stacks.weights.values.map(\.stalls) == [1, 1])
        #expect(stacks.weights.values.map(\.amount).sorted() == [300_000_000, 300_000_000])
    }

    @Test("Stacks of the same weight always have the same order, whatever distinguishes them")
    func order() {
        var stacks = WeightedStacks()
        for service in ["c", "a", "b"] {
            for verdict in ["on_cpu", "starved", "waiting"] {
                var report = ExportSample.report([([ExportSample.frame("main")], 1)])
                (report.service, report.cause.verdict) = (.init(name: service), Verdict(rawValue: verdict))
                stacks.add(report)
            }
        }
        let names = stacks.sorted.map { "\($0.key.service) \($0.key.verdict)" }
        #expect(names.count == 9 && names == names.sorted())
    }

    @Test(
        "The page draws its boxes and rows in a browser, and runs no code from a report",
        .enabled(if: Tool.exists("chromium"), "chromium is not installed")
    )
    func browser() throws {
        let hostile = ExportSample.report(
            [([ExportSample.frame("<img src=x onerror=document.title='broken'>", own: true)], 1)],
            culprit: "<img src=x onerror=document.title='broken'>"
        )
        let page = try Tool.File(ExportSample.export(.html, [hostile] + ExportSample.reports), suffix: "html")
        let arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom", page.path,
        ]
        let dom = try Tool.run("chromium", arguments).output
        #expect(dom.contains("<title>Stalls</title>"))
        #expect(dom.components(separatedBy: "class=\"box").count - 1 == 9)
        let rows = dom.components(separatedBy: "<section id=\"rows\">")[1]
        #expect(rows.components(separatedBy: "<tr>").count - 1 == 4)
        #expect(!dom.contains("<img"))
    }

    /// Three samples in two stacks of one thread, one of another, with a name from outside.
    private var samples: WeightedStacks {
        var stacks = WeightedStacks(unit: .samples)
        let calls = ["parse", "serve", "main"].map { ExportSample.frame($0, own: true) }
        for (count, thread, frames) in [
            (2, "7 main", calls), (1, "7 main", Array(calls.dropFirst())),
            (1, "8 <b>worker", [ExportSample.frame("</script>")]),
        ] {
            let stack = StallReport.Stack(thread: .init(id: 7), capturedAt: ExportSample.start, frames: frames)
            stacks.add(count, of: thread, stack, ExportSample.modules, at: ExportSample.start)
        }
        return stacks
    }

    @Test("Samples are counted, not timed: in each format a stack's weight is the number of its samples")
    func sampled() throws {
        let file = { (format: StackFormat) in try Data(format.file(of: samples, "shop (7)", summary: "4 samples")) }
        let collapsed = try String(decoding: file(.collapsed), as: UTF8.self)
        #expect(collapsed == "7 main;main;serve;parse 2\n7 main;main;serve 1\n8 <b>worker;</script> 1\n")

        let speedscope = try ExportSample.json(file(.speedscope))
        let profiles = try #require(speedscope["profiles"] as? [[String: Any]])
        #expect(speedscope["name"] as? String == "shop (7)")
        #expect(profiles.map { $0["name"] as? String } == ["7 main", "8 <b>worker"])
        #expect(profiles.map { $0["unit"] as? String } == ["none", "none"])
        #expect(profiles.map { $0["weights"] as? [Int] } == [[2, 1], [1]])

        let picture = try String(decoding: file(.svg), as: UTF8.self)
        #expect(picture.contains(">4 samples of shop (7)</text>"))
        #expect(picture.contains("<title>parse\n/srv/shop\n2 samples, 50.0 %</title>"))
        #expect(picture.contains("<title>8 &lt;b&gt;worker\n1 sample, 25.0 %</title>"))
    }

    @Test("A picture's shares are rounded, and none above 0 is shown as 0")
    func shares() throws {
        var stacks = WeightedStacks(unit: .samples)
        for (count, name) in [(2000, "often"), (999, "seldom"), (1, "once")] {
            let frames = [ExportSample.frame(name)]
            let stack = StallReport.Stack(thread: .init(id: 7), capturedAt: ExportSample.start, frames: frames)
            stacks.add(count, of: name, stack, ExportSample.modules, at: ExportSample.start)
        }
        let picture = try String(decoding: StackFormat.svg.file(of: stacks, "shop (7)"), as: UTF8.self)
        #expect(picture.contains("<title>often\n2000 samples, 66.7 %</title>"))
        #expect(picture.contains("<title>once\n1 sample, &lt;0.1 %</title>"))
    }

    @Test(
        "pprof: its own tool counts samples",
        .enabled(if: Tool.exists("go"), "go is not installed: apt-get install golang-go")
    )
    func sampledPprof() throws {
        let file = try Tool.File(Data(StackFormat.pprof.file(of: samples, "shop (7)")), suffix: "pb")
        let top = try Tool.run("go", ["tool", "pprof", "-top", "-tagfocus", "label=7 main", file.path])
        #expect(top.status == 0 && top.output.contains("Type: samples"), "\(top.output)")
        #expect(top.output.contains("2 50.00% 50.00%          2 50.00%  parse"), "\(top.output)")
    }

    @Test(
        "A page of samples has the graph and no table of stalls",
        .enabled(if: Tool.exists("chromium"), "chromium is not installed")
    )
    func sampledPage() throws {
        let bytes = try StackFormat.html.file(of: samples, "shop (7)", summary: "4 samples, one every 10ms")
        let page = try Tool.File(Data(bytes), suffix: "html")
        let dom = try Tool.run(
            "chromium",
            ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom", page.path]
        ).output
        #expect(dom.contains("<title>shop (7)</title>") && dom.contains("4 samples, one every 10ms</p>"))
        let place = "tabindex=\"-1\" style=\"left: 0%; width: 75%; top: 36px;\""
        #expect(dom.contains("3 samples, 75.0 % of all\" \(place)>main</button>"))
        #expect(dom.components(separatedBy: "class=\"box").count - 1 == 7)
        let rows = dom.components(separatedBy: "<section id=\"rows\">")[1]
        #expect(!rows.contains("<td") && !dom.contains("<b>"))
    }

    @Test(
        "A comparison's table is sorted by its numbers and lengths, not by their texts",
        .enabled(if: Tool.exists("chromium"), "chromium is not installed"),
        arguments: [(0, ["100", "10", "9"]), (1, ["10", "100", "9"])]
    )
    func sortedComparison(_ column: Int, _ order: [String]) throws {
        let sides = ["1.4", "1.5"].map { FlameGraphDifference.Side(name: $0, watchedNs: 0) }
        let bytes = try FlameGraphDifference(before: sides[0], after: sides[1]).page(
            summary: "",
            columns: ["After", "Median"],
            rows: [["9", "– → 900ms"], ["10", "1s → 1m5s"], ["100", "3s → 2.5s"]]
        )
        let click = "<script>document.querySelectorAll('#rows th button')[\(column)].click()</script></body>"
        let text = String(decoding: bytes, as: UTF8.self).replacing("</body>", with: click)
        let page = try Tool.File(Data(text.utf8), suffix: "html")
        let dom = try Tool.run(
            "chromium",
            ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom", page.path]
        ).output
        let table = dom.components(separatedBy: "<section id=\"rows\">")[1]
        let rows = table.components(separatedBy: "<tr><td>").dropFirst()
        #expect(rows.map { $0.components(separatedBy: "<")[0] } == order)
    }
}
