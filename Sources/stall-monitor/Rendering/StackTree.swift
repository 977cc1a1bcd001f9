import StallReading
import StallReports

/// A tree of stacks as lines: the share, then the call, indented where paths branch.
struct StackTreeListing {
    let tree: StackTree
    var style = PageStyle()

    var lines: [StyledText] { tree.lines(showsAll: style.showsAllFrames).map(text) }

    private func text(_ line: StackTree.Line) -> StyledText {
        switch line.part {
        case .call(let call, let share): text(line.depth, share, Self.text(call))
        case .folded(let count):
            text(line.depth, nil, "\("… \(count) library calls (\(style.fullHint) shows them)", .dim)")
        case .rare(let count): text(line.depth, nil, "\("… \(quantity(count, "way")) of less than 1 %", .dim)")
        case .more: "          \("… more calls (--format json has them)", .dim)"
        }
    }

    private func text(_ depth: Int, _ share: Double?, _ text: StyledText) -> StyledText {
        let percent = share.map { "\(Int(saturating: ($0 * 100).rounded())) %" } ?? ""
        let room = String(repeating: " ", count: max(0, 5 - percent.count))
        return "  \(room)\(percent, .dim) \(String(repeating: "  ", count: depth))\(text)"
    }

    private static func text(_ call: StackTree.Call) -> StyledText {
        let mark: StyledText = call.own ? "\("▶", .bold)" : " "
        let name = StyledText(call.name, call.own ? .bold : nil, limit: 200)
        return "\(mark) \(name)  \(StyledText(call.place ?? "", .dim, limit: 100))"
    }
}
