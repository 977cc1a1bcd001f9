import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Flame graph in the terminal")
struct FlameTests {
    /// Three quarters of the time in one call, the rest in another, and a thousandth in a third.
    private func chart(width: Int?, colours: Bool = false) -> FlameChart {
        var tree = StackTree()
        for (name, weight) in [("wide", 7500), ("narrow", 2490), ("dust", 10)] {
            let frames = [(name, name == "wide"), ("main", true)].map { function, own in
                StallReport.Frame(address: 0x1000, function: function, own: own)
            }
            let stack = StallReport.Stack(thread: Sample.thread, capturedAt: Sample.start, frames: frames)
            tree.add(stack, modules: [], weight: Int64(weight))
        }
        return FlameChart(tree: tree, title: "3 stalls", style: .init(hasColours: colours, width: width))
    }

    @Test("a call is as wide as its share and below its caller; calls narrower than a column are not drawn")
    func layout() {
        let lines = chart(width: 40).lines.map(\.plain)
        #expect(lines[0] == "Flame graph of 3 stalls, outermost call first")
        #expect(lines[1].hasPrefix("▏10µs ───") && lines[1].count == 40)
        #expect(lines[2].hasPrefix("▏▶ main ───") && lines[2].count == 40)
        let bars = Array(lines[3]).enumerated().filter { $0.element == "▏" }.map(\.offset)
        #expect(bars == [0, 30] && lines[3].hasPrefix("▏▶ wide ") && lines[3].contains("▏narrow"))
        #expect(lines[4].isEmpty && !lines.prefix(5).joined().contains("dust"))
        #expect(lines[5] == "Innermost own functions" && lines[6].contains("75 % ▶ wide"))
        // The time in library calls is the calling function's.
        #expect(lines[7].contains("25 % ▶ main") && lines.count == 8)
    }

    @Test("no line is wider than the terminal, with colours and without", arguments: [20, 60, 80, 120, 200])
    func widths(width: Int) {
        for colours in [false, true] {
            let lines = chart(width: width, colours: colours).lines
            #expect(lines.dropFirst().prefix(3).allSatisfy { $0.width <= width } && lines.count >= 8)
        }
    }

    @Test("with colours, own code and libraries have backgrounds; neighbours differ")
    func colours() {
        let line = chart(width: 40, colours: true).lines[3].coloured
        #expect(line.contains("\u{1B}[30;43m") != line.contains("\u{1B}[30;103m"))
        #expect(line.contains("\u{1B}[30;47m") != line.contains("\u{1B}[37;100m"))
        #expect(!line.contains("▏"))
    }

    @Test("the f key on a page of top switches its stacks to a flame graph and back")
    func key() {
        var state = TopState()
        let rows = [TopState.Row.stall(ULID(rawValue: 1))]
        for key in [KeyPress.enter, .character("f")] { state.press(key, rows: rows, room: 9, length: 1) }
        #expect(state.showsFlame && state.page != nil && state.view == .live)
        state.press(.character("f"), rows: rows, room: 9, length: 1)
        #expect(!state.showsFlame)
    }

    @Test("the time of stalls without a stack is a box of its own, and a branch of a fault; alone, nothing is drawn")
    func withoutStack() throws {
        let fixture = try ReportsFixture()
        var bare = Sample.report(id: .make())
        bare.stacks = []
        bare.culprit = nil
        try fixture.store.write(bare)
        let alone = try CommandRun("faults", fixture.path, "--flame")
        #expect(alone.output == "No stack was captured.\n" && alone.status == 0, "\(alone.output)")
        var empty = Sample.report(id: .make())
        empty.stacks[0].frames = []
        try fixture.store.write(empty)
        for _ in 0..<2 { try fixture.store.write(Sample.report(id: .make())) }
        let graph = try CommandRun("faults", fixture.path, "--flame").output
        let lines = graph.split(separator: "\n")
        #expect(lines[0] == "Flame graph of 4 stalls, outermost call first", "\(graph)")
        #expect(lines[1].hasPrefix("▏2.45s "), "\(graph)")
        #expect(lines[2].contains("(no stack)") && graph.contains("50 %   (no stack)"), "\(graph)")
        let fault = try CommandRun("show", "\(bare.fingerprint)", fixture.path).output
        #expect(fault.contains("50 %   (no stack)") && fault.contains("of 4 reports"), "\(fault)")
    }

    @Test("show and faults draw it, in text format only")
    func command() throws {
        let fixture = try ReportsFixture()
        for _ in 0..<2 { try fixture.store.write(Sample.report(id: .make())) }
        for arguments in [["show", "latest", fixture.path], ["faults", fixture.path]] {
            let run = try CommandRun(arguments: arguments + ["--flame"])
            #expect(run.status == 0 && run.output.contains("Flame graph of") && run.output.contains("▶ main"))
            #expect(try CommandRun(arguments: arguments + ["--flame", "--format", "json"]).status == 64)
        }
        #expect(
            try CommandRun("faults", fixture.path, "--flame", "--service", "none").errors.contains("no matching stalls")
        )
        let sorted = try CommandRun("faults", fixture.path, "--flame", "--sort", "worst")
        #expect(sorted.status == 0 && sorted.errors.contains("--sort worst is for the table"), "\(sorted.errors)")
    }
}
