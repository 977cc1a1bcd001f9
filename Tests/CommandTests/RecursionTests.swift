import StallReports
import Testing

@testable import stall_monitor

@Suite("Recursion in a listed stack")
struct RecursionTests {
    private func listing(_ names: [String], own: Set<String> = []) -> [String] {
        let frames = names.map {
            StallReport.Frame(address: 1, function: $0, file: "/src/\($0).swift", line: 7, own: own.contains($0))
        }
        let stack = StallReport.Stack(thread: .init(id: 1), capturedAt: Sample.start, frames: frames)
        return StackListing(stack: stack, modules: [], showsAllFrames: true).lines.dropFirst().map {
            $0.plain.split(separator: " ").joined(separator: " ")
        }
    }

    @Test("recursion of one function is printed once, with its count")
    func one() {
        let names = ["leaf"] + Array(repeating: "walk", count: 998) + ["main"]
        #expect(
            listing(names)
                == ["0 leaf leaf.swift:7", "1 walk walk.swift:7", "↑ repeated 997 times", "999 main main.swift:7"]
        )
    }

    @Test("mutual recursion of several functions is printed once, with its count")
    func cycle() {
        let names = Array(repeating: ["parse", "value", "list"], count: 5).flatMap { $0 } + ["parse", "main"]
        #expect(
            listing(names, own: ["parse"]) == [
                "▶ 0 parse parse.swift:7", "1 value value.swift:7", "2 list list.swift:7", "↑ repeated 4 times",
                "▶ 15 parse parse.swift:7", "16 main main.swift:7",
            ]
        )
    }

    @Test("two calls in a row, or calls at different lines, are not folded")
    func none() {
        #expect(listing(["walk", "walk", "main"]).count == 3)
        #expect(listing(["a", "b", "a", "b", "main"]).count == 5)
        #expect(listing([]).isEmpty)
    }

    @Test("an inlined call is marked and shows its line instead of an offset")
    func inlined() {
        let frame = StallReport.Frame(
            kind: .inlined,
            address: 1,
            function: "sum()",
            file: "/a/Cart.swift",
            line: 12
        )
        let stack = StallReport.Stack(thread: .init(id: 1), capturedAt: Sample.start, frames: [frame])
        let line = StackListing(stack: stack, modules: []).lines[1].plain
        #expect(line.contains("sum() (inlined)  Cart.swift:12"))
    }
}
