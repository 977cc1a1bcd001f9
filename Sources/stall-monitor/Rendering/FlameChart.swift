import StallReading
import StallReports

/// Merged stacks as a flame graph for a terminal: one line per call depth with the outermost call on top, each call as wide as
/// its share of the time. Pure.
///
/// With colours, boxes have a background: yellow for own code, grey for libraries. Without, a bar marks the left edge of each.
struct FlameChart {
    let tree: StackTree
    /// What the stacks belong to, for the first line: `3 stalls`.
    let title: String
    /// Without a width, it is 100 columns wide.
    var style = PageStyle()

    private static let depthLimit = 200
    private static let innermostLimit = 8

    /// A box on a line: the columns it covers, and its call or the number of folded calls.
    private struct Box {
        var start: Int
        var width: Int
        var node: Int
        var folded = 0
    }

    var lines: [StyledText] {
        let width = max(20, style.width ?? 100)
        guard tree.hasStacks else { return ["No stack was captured."] }
        var lines = ["\("Flame graph", .bold) of \(title), outermost call first" as StyledText]
        var level = [Box(start: 0, width: width, node: 0)]
        // Two shades alternate along a line, and from line to line, so that neighbours differ.
        while !level.isEmpty, lines.count <= Self.depthLimit {
            lines.append(line(of: level, shade: lines.count))
            level = level.flatMap(next)
        }
        if !level.isEmpty { lines.append("\("… deeper calls (--format json has them)", .dim)") }
        return lines + [""] + innermost(width)
    }

    // MARK: Layout

    /// What is drawn below a box: its call, after folded ones; otherwise its children.
    private func next(_ box: Box) -> [Box] {
        if box.folded > 0 { return [Box(start: box.start, width: box.width, node: box.node)] }
        let parent = tree.nodes[box.node]
        var (sum, boxes): (Int64, [Box]) = (0, [])
        for child in tree.heaviestFirst(parent.children) {
            let start = column(sum, of: parent.weight, in: box)
            sum = sum.addingSaturated(tree.nodes[child].weight)
            let end = column(sum, of: parent.weight, in: box)
            // A box narrower than a column is not drawn.
            guard end > start else { continue }
            let fold = style.showsAllFrames ? (0, child) : tree.folded(from: child, parentIsOwn: parent.own)
            boxes.append(Box(start: start, width: end - start, node: fold.1, folded: fold.0))
        }
        return boxes
    }

    private func column(_ sum: Int64, of whole: Int64, in box: Box) -> Int {
        let share = min(1, Double(sum) / Double(max(1, whole)))
        return box.start + Int(saturating: (share * Double(box.width)).rounded())
    }

    // MARK: Drawing

    private func line(of boxes: [Box], shade: Int) -> StyledText {
        var (line, column) = (StyledText(), 0)
        for (index, box) in boxes.enumerated() {
            line = line + StyledText(String(repeating: " ", count: max(0, box.start - column)))
            line = line + draw(box, isDark: (index + shade).isMultiple(of: 2))
            column = box.start + box.width
        }
        return line
    }

    private func draw(_ box: Box, isDark: Bool) -> StyledText {
        let node = tree.nodes[box.node]
        let own = box.folded == 0 && node.own
        let call = box.node == 0 ? DurationText(nanoseconds: node.weight).short : (own ? "▶ " : "") + node.name
        let name = box.folded > 0 ? "… \(box.folded) library calls" : call
        let label = StyledText(name, limit: 500).truncated(to: max(0, box.width - 1)).plain
        if style.hasColours {
            let style: StyledText.Style =
                own ? (isDark ? .ownBox : .lightOwnBox) : (isDark ? .libraryBox : .lightLibraryBox)
            let text = (" " + label).filled(to: box.width, with: " ")
            return StyledText(text, style, limit: .max)
        }
        let text = "▏" + label
        guard text.terminalWidth + 1 < box.width else {
            return StyledText(text.filled(to: box.width, with: " "), limit: .max)
        }
        return StyledText((text + " ").filled(to: box.width, with: "─"), limit: .max)
    }

    /// The own functions that were innermost for most of the time, each with the time in the library calls that it made. Most
    /// stacks end in the same few library calls, which say little. A stack without own functions counts for its innermost call.
    private func innermost(_ width: Int) -> [StyledText] {
        var times: [Call: Int64] = [:]
        // A node comes after its parent.
        var owners = [Int?](repeating: nil, count: tree.nodes.count)
        for (index, node) in tree.nodes.enumerated() {
            if node.own { owners[index] = index }
            for child in node.children { owners[child] = owners[index] }
            let inner = node.children.map { tree.nodes[$0].weight }.saturatingSum()
            let rest = node.weight.subtractingSaturated(inner)
            guard rest > 0, index > 0 else { continue }
            let call = Call(tree.nodes[owners[index] ?? index])
            times[call, default: 0] = times[call, default: 0].addingSaturated(rest)
        }
        let total = Double(max(1, tree.nodes[0].weight))
        let shown = times.sorted { ($1.value, $0.key.name) < ($0.value, $1.key.name) }.prefix(Self.innermostLimit)
        return ["\("Innermost own functions", .bold)" as StyledText]
            + shown.map { call, weight in
                let rounded = Int(saturating: (Double(weight) / total * 100).rounded())
                let percent = rounded > 0 ? "\(rounded) %" : "<1 %"
                let room = String(repeating: " ", count: max(0, 7 - percent.count))
                let mark = call.own ? "▶ " : "  "
                let name = StyledText(call.name, call.own ? .bold : nil, limit: 200)
                let place = StyledText(call.place, .dim, limit: 100)
                let line: StyledText = "\(room)\(percent, .dim) \(mark, .bold)\(name)  \(place)"
                return line.truncated(to: width)
            }
    }

    private struct Call: Hashable {
        let name: String
        let place: String
        let own: Bool

        init(_ node: StackTree.Node) { (name, place, own) = (node.name, node.place ?? "", node.own) }
    }
}

extension String {
    /// Filled up to `width` columns.
    fileprivate func filled(to width: Int, with filler: Character) -> String {
        self + String(repeating: filler, count: max(0, width - terminalWidth))
    }
}
