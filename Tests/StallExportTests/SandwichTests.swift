import Foundation
import StallExport
import StallReports
import Testing

@Suite("The sandwich view of a flame graph", .enabled(if: Tool.exists("chromium"), "chromium is not installed"))
struct SandwichTests {
    /// `parse()` in three places: twice below `serve`, once of these also within itself, and once below `load`.
    private static let reports = [
        ExportSample.report([
            ([frame("read"), frame("parse()"), frame("serve"), frame("main")], 300),
            ([frame("parse()"), frame("item"), frame("parse()"), frame("serve"), frame("main")], 200),
            ([frame("read"), frame("parse()"), frame("load"), frame("main")], 100),
        ])
    ]

    private static func frame(_ name: String) -> StallReport.Frame { ExportSample.frame(name, own: true) }

    private static let choice =
        "[...document.querySelectorAll('.function')].find(one => one.textContent === 'parse()').click();"

    /// The boxes of the page after `script` has run: each with its row, its name and its time.
    private func boxes(after script: String) throws -> [String] {
        let page = try ExportSample.text(.html, Self.reports)
        let text = page.replacing("</body>", with: "<script>\(script)</script></body>")
        let file = try Tool.File(Data(text.utf8), suffix: "html")
        let dom = try Tool.run(
            "chromium",
            ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom", file.path]
        ).output
        let box = /class="box[^"]*" title="([^"\n]*)[^"]*\n([^",\n]*)[^"\n]*" tabindex="-?\d" style="[^"]*top: (\d+)px/
        return dom.matches(of: box).map { "\((Int($0.3) ?? 0) / 18) \($0.1) \($0.2)" }
    }

    private func whole() throws -> [String] { try boxes(after: "") }

    @Test("The chosen function has all its callers above it and all its callees below it; a recursion counts once")
    func chosen() throws {
        #expect(try whole().count == 11)
        let shown = try boxes(after: Self.choice)
        #expect(
            shown == [
                "0 shop: main 500.0 ms", "0 shop: main 100.0 ms", "1 main 500.0 ms", "1 main 100.0 ms",
                "2 serve 500.0 ms", "2 load 100.0 ms", "3 parse() 600.0 ms", "4 read 400.0 ms", "4 item 200.0 ms",
                "5 parse() 200.0 ms",
            ]
        )
    }

    @Test("A box of it is the next function to choose; two buttons lead back to the whole graph")
    func next() throws {
        let next =
            Self.choice + "[...document.querySelectorAll('.box')].find(one => one.textContent === 'read').click();"
        let shown = try boxes(after: next)
        #expect(shown.last == "4 read 400.0 ms" && shown.count == 8)
        for id in ["sandwich", "reset"] {
            let (back, whole) = try (boxes(after: next + "document.getElementById('\(id)').click();"), whole())
            #expect(back == whole, "\(id)")
        }
    }

    @Test("The arrow keys lead from box to box, and the sandwich is that of the box with the focus")
    func keyboard() throws {
        let keys = ["Down", "Down", "Down", "Right", "Left", "Down", "Up", "Down"].map { key in
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Arrow\(key)', bubbles: true }));"
        }
        let moves = "document.querySelector('.box[tabindex=\"0\"]').focus();" + keys.joined()
        let shown = try boxes(after: moves + "document.getElementById('sandwich').click();")
        #expect(shown.contains("3 parse() 600.0 ms") && shown.count == 10)
    }
}
