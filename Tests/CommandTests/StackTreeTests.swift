import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Merged stacks")
struct StackTreeTests {
    private func stack(_ calls: String, count: Int = 1) -> StallReport.Stack {
        let frames = calls.map {
            StallReport.Frame(address: 1, function: String($0), own: $0.isUppercase)
        }
        return .init(thread: Sample.thread, capturedAt: Sample.start, count: count, frames: frames)
    }

    private func lines(_ stacks: [StallReport.Stack], full: Bool = false) -> [String] {
        var report = Sample.report()
        report.stacks = stacks
        var tree = StackTree()
        tree.add(report)
        return StackTreeListing(tree: tree, style: PageStyle(showsAllFrames: full)).lines.map { line in
            line.plain.split(separator: " ").joined(separator: " ")
        }
    }

    @Test("shared frames are printed once; each branch shows its share, the widest first")
    func shares() {
        #expect(
            lines([stack("aBm", count: 3), stack("cDm", count: 1)]) == [
                "100 % m", "75 % ▶ B", "75 % a", "25 % ▶ D", "25 % c",
            ]
        )
    }

    @Test("a stack's share is the time for which it was found, not the number of its samples")
    func times() {
        var stacks = [stack("aBm", count: 9), stack("cDm", count: 1)]
        (stacks[0].sampledNs, stacks[1].sampledNs) = (100_000_000, 300_000_000)
        #expect(lines(stacks) == ["100 % m", "75 % ▶ D", "75 % c", "25 % ▶ B", "25 % a"])
    }

    @Test("consecutive library frames are folded, except the one that own code calls")
    func folds() {
        let folded = ["… 3 library calls (--full shows them)", "100 % ▶ D", "100 % c", "100 % b", "100 % a"]
        #expect(lines([stack("abcDefg")]) == folded)
        #expect(!lines([stack("abcDefg")], full: true).contains { $0.hasPrefix("…") })
    }

    @Test("samples anywhere in a function without a name are one branch; its awaiting caller is printed outside it")
    func nameless() {
        var stacks = [0x10, 0x24, 0x38].map { offset in
            StallReport.Stack(
                thread: Sample.thread,
                capturedAt: Sample.start,
                frames: [
                    .init(
                        address: 0x9999,
                        module: 0,
                        offset: Address(0x1000 + offset),
                        functionOffset: Address(offset)
                    ),
                    .init(address: 1, function: "drain"),
                ]
            )
        }
        #expect(lines(stacks) == ["100 % drain", "100 % shop+0x1000 (no symbols) shop"])
        for index in stacks.indices {
            stacks[index].async = .init(from: 0, frames: [.init(address: 1, function: "handler")], ends: .task)
        }
        #expect(lines(stacks) == ["100 % handler", "100 % shop+0x1000 (no symbols) shop"])
    }

    @Test("a stack of 100,000 calls and 100,000 stacks are printed in bounded space")
    func huge() {
        let deep = StallReport.Stack(
            thread: Sample.thread,
            capturedAt: Sample.start,
            count: .max,
            frames: (0..<100_000).map { .init(address: Address(UInt64($0)), own: true) }
        )
        #expect(lines([deep, deep]).count <= 210)
        var tree = StackTree()
        for index in 0..<100_000 {
            let frame = StallReport.Frame(address: Address(UInt64(index)), own: true)
            tree.add(.init(thread: Sample.thread, capturedAt: Sample.start, frames: [frame]), modules: [], weight: .max)
        }
        #expect(tree.nodes.count <= StackTree.nodeLimit && StackTreeListing(tree: tree).lines.count <= 210)
    }
}
