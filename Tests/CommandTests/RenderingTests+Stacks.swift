import Foundation
import StallReports
import Testing

@testable import stall_monitor

// Stacks: which frames are shown, which are folded, and what is said of those that are left out.

extension RenderingTests {
    @Test("stacks: two or more library frames in a row are folded; --full shows all")
    func folding() {
        let stack = Sample.report().stacks[0]
        typealias Part = StackListing.Part
        #expect(
            StackListing(stack: stack, modules: []).parts
                == [.frame(0), .frame(1), .frame(2), .frame(3), .frame(4), .frame(5), .frame(6)]
        )
        func parts(_ own: String) -> [Part] {
            var stack = stack
            stack.frames = own.enumerated().map { .init(address: Address(UInt64($0)), own: $1 == "o") }
            return StackListing(stack: stack, modules: []).parts
        }
        #expect(parts("lllolll") == [.frame(0), .frame(1), .frame(2), .frame(3), .folded(3)])
        #expect(
            parts("lllllolllo") == [.frame(0), .folded(3), .frame(4), .frame(5), .folded(2), .frame(8), .frame(9)]
        )
        #expect(parts("llllllllllll") == (0..<10).map(Part.frame) + [.folded(2)])
        #expect(parts("") == [])
        var all = StackListing(stack: stack, modules: [])
        all.showsAllFrames = true
        #expect(all.parts == (0..<7).map(Part.frame))
    }

    @Test("the frames left out of a deep stack are one line, and nothing is folded across it")
    func leftOut() {
        var stack = Sample.report().stacks[0]
        stack.frames = "lolllllo".enumerated().map { .init(address: Address(UInt64($0)), own: $1 == "o") }
        stack.leftOut = .init(after: 4, count: 98_976)
        let listing = StackListing(stack: stack, modules: [])
        #expect(
            listing.parts == [
                .frame(0), .frame(1), .folded(2), .leftOut(98_976), .folded(2), .frame(6), .frame(7),
            ]
        )
        #expect(listing.lines[4].plain == "       … 98,976 frames left out …")
    }

    @Test("recursion is folded on each side of the left-out frames, not across them")
    func recursionAroundGap() {
        var stack = Sample.report().stacks[0]
        stack.frames = Array(repeating: .init(address: Address(1), function: "walk", own: true), count: 8)
        stack.leftOut = .init(after: 4, count: 90)
        let again = StackListing.Part.repeated(.init(period: 1, count: 3))
        #expect(
            StackListing(stack: stack, modules: []).parts == [.frame(0), again, .leftOut(90), .frame(4), again]
        )
        stack.leftOut = .init(after: 2, count: 90)
        #expect(
            StackListing(stack: stack, modules: []).parts == [
                .frame(0), .frame(1), .leftOut(90), .frame(2), .repeated(.init(period: 1, count: 5)),
            ]
        )
    }

    @Test("left-out frames are also mentioned at the end, after it, and among cut frames", arguments: [7, 9, Int.max])
    func leftOutAtTheEnd(after: Int) {
        var stack = Sample.report().stacks[0]
        stack.leftOut = .init(after: after, count: 90)
        #expect(
            StackListing(stack: stack, modules: []).parts == (0..<7).map(StackListing.Part.frame) + [.leftOut(90)]
        )
        stack.frames = (0..<2000).map { .init(address: Address(UInt64($0)), own: true) }
        stack.leftOut = .init(after: 1500, count: 90)
        #expect(
            StackListing(stack: stack, modules: []).parts.suffix(2)
                == [.cut(2000 - StackListing.limit), .leftOut(90)]
        )
    }

    @Test(
        "what the compiler made is dim; a name that becomes twice as long with each of its parts is not demangled for that",
        .timeLimit(.minutes(1))
    )
    func madeUp() {
        let served = "$s4shop5serveyyYaF"
        let adapter = "$sxIeAgHr_xs5Error_pIegHrzo_s8SendableRzlTR"
        // Dictionaries of dictionaries: each has the one before twice, the second time as a reference.
        let dictionary = (0..<40).reduce("SDySiSiG") { inner, level in
            let place = level < 26 ? "\(UnicodeScalar(UInt8(65 + level)))" : level == 26 ? "_" : "\(level - 27)_"
            return "SDy\(inner)A\(place)G"
        }
        let symbols = [
            (adapter + "TQ0_", true), (adapter + "TA.219TQ0_", true), (served + "yyYaYbcfU_TATQ1_", true),
            ("$s4shop1SVAA1PA2aDP1fyyYaFTWTY0_", true), (served + "TQ1_", false), (served + "yyYaYbcfU_TQ0_", false),
            ("$s\(dictionary)D", false),
        ]
        var stack = Sample.report().stacks[0]
        for (symbol, isDim) in symbols {
            let frame = StallReport.Frame(kind: .awaiting, address: 1, function: "f", symbol: symbol, own: false)
            stack.async = .init(from: 0, frames: [frame], ends: .task)
            let listing = StackListing(stack: stack, modules: [], showsAllFrames: true)
            let line = listing.lines.first { $0.plain.contains("await") }?.coloured
            #expect(line?.contains("\u{1B}[2mf\u{1B}[0m") == isDim, "\(symbol)")
        }
    }

    @Test("two or more awaiting library functions are folded, beside own ones; --full shows all")
    func foldedAwaits() {
        var stack = Sample.report().stacks[0]
        stack.async = .init(
            from: 0,
            frames: "olllol".enumerated().map {
                .init(kind: .awaiting, address: Address(UInt64($0)), own: $1 == "o")
            },
            ends: .task
        )
        var listing = StackListing(stack: stack, modules: [])
        let folded = listing.lines.map(\.plain)
        #expect(folded.count { $0.contains("await") } == 4)
        #expect(folded.contains("       … 3 library functions await (--full shows them)"))
        listing.showsAllFrames = true
        #expect(listing.lines.count { $0.plain.contains("await") } == 6)
    }

    @Test("a stack of 100,000 frames is printed with bounded length")
    func hugeStack() {
        var stack = Sample.report().stacks[0]
        stack.frames = (0..<100_000).map { .init(address: Address(UInt64($0)), own: true) }
        #expect(StackListing(stack: stack, modules: []).parts.last == .cut(100_000 - StackListing.limit))
    }

    @Test("own frames are marked and bold")
    func ownFrames() {
        let listing = StackListing(stack: Sample.report().stacks[0], modules: Sample.report().modules)
        #expect(
            listing.lines[3].coloured
                == "  \u{1B}[1m▶\u{1B}[0m   2  \u{1B}[1mshop.Cart.total() -> Swift.Int\u{1B}[0m \u{1B}[2m+ 0x10\u{1B}[0m  "
                + "\u{1B}[2mshop\u{1B}[0m"
        )
        #expect(listing.lines[1].plain == "      0  clock_nanosleep + 0x10  libc.so.6")
    }
}
