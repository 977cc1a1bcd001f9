import StallReports

/// Stacks merged from the outermost call inwards, each call with the share of time that it was on the stack.
///
/// The nodes are in one array and are visited without recursion, so that a very deep stack in a file cannot overflow this
/// process's own stack.
struct StackTree {
    struct Node {
        let name: String
        let own: Bool
        let place: String?
        var weight: Int64
        var children: [Int] = []
    }

    /// The first node is the root, which is not a call.
    private(set) var nodes = [Node(name: "", own: false, place: nil, weight: 0)]
    private var index: [Key: Int] = [:]

    private struct Key: Hashable {
        let parent: Int
        let name: String
    }

    /// The largest number of calls of one stack, and of the whole tree.
    static let depthLimit = 512
    static let nodeLimit = 65_536

    /// - Parameter weight: the time that the stack represents.
    mutating func add(_ stack: StallReport.Stack, modules: [StallReport.Module], weight: Int64) {
        let weight = max(1, weight)
        nodes[0].weight = nodes[0].weight.addingSaturated(weight)
        var node = 0
        for frame in stack.callers(from: 0).suffix(Self.depthLimit).reversed() {
            guard let next = child(of: node, for: frame, modules) else { return }
            nodes[next].weight = nodes[next].weight.addingSaturated(weight)
            node = next
        }
    }

    /// Adds the stalled thread's stacks of a report, its duration divided by the time that each represents, as exports do. If
    /// that was not counted, by their sample counts: samples are not taken at equal intervals.
    mutating func add(_ report: StallReport) {
        let stacks = report.stacks.filter { $0.role == .stalled && !$0.frames.isEmpty }
        let times = stacks.map { max(0, $0.sampledNs ?? 0) }
        let parts = times.contains { $0 > 0 } ? times : stacks.map { Int64(max(1, $0.count)) }
        let sum = Double(max(1, parts.saturatingSum()))
        for (stack, part) in zip(stacks, parts) {
            let share = Double(part) / sum
            add(stack, modules: report.modules, weight: Int64(saturating: Double(max(1, report.durationNs)) * share))
        }
    }

    private mutating func child(
        of parent: Int,
        for frame: StallReport.Frame,
        _ modules: [StallReport.Module]
    ) -> Int? {
        let module = modules.module(of: frame)
        let name = frame.function ?? frame.symbol ?? frame.placeName(in: module?.path)
        let key = Key(parent: parent, name: name)
        if let known = index[key] { return known }
        guard nodes.count < Self.nodeLimit else { return nil }
        let place = frame.sourcePlace ?? module.map { fileName(ofPath: $0.path) }
        nodes.append(Node(name: name, own: frame.own, place: place, weight: 0))
        nodes[parent].children.append(nodes.count - 1)
        index[key] = nodes.count - 1
        return nodes.count - 1
    }
}

extension StackTree {
    /// Sorted by weight, heaviest first.
    func heaviestFirst(_ nodes: [Int]) -> [Int] {
        nodes.sorted { (self.nodes[$1].weight, $0) < (self.nodes[$0].weight, $1) }
    }

    /// The library calls to skip, beginning with a node: those with a single child of the same weight, except those called by own
    /// functions. A single call is not folded.
    ///
    /// - Returns: The number of skipped calls, and the node after them.
    func folded(from node: Int, parentIsOwn: Bool) -> (count: Int, node: Int) {
        var (count, next, parentIsOwn) = (0, node, parentIsOwn)
        while case let call = nodes[next], !call.own, !parentIsOwn, call.children.count == 1,
            nodes[call.children[0]].weight == call.weight
        {
            (count, next, parentIsOwn) = (count + 1, call.children[0], false)
        }
        return count > 1 ? (count, next) : (0, node)
    }
}

/// A tree of stacks as lines: the share, then the call, indented where paths branch.
struct StackTreeListing {
    let tree: StackTree
    var style = PageStyle()

    private static let lineLimit = 200
    /// Paths with a smaller share are counted but not shown.
    private static let leastShare = 0.01

    private struct Visit {
        var node: Int
        var depth: Int
        var parentIsOwn = false
    }

    var lines: [StyledText] {
        let total = Double(max(1, tree.nodes[0].weight))
        var lines: [StyledText] = []
        var open = visits(of: 0, depth: 0, total, &lines)
        while let visit = open.popLast() {
            guard lines.count < Self.lineLimit else {
                return lines + ["          \("… more calls (--format json has them)", .dim)"]
            }
            var visit = visit
            let folded = style.showsAllFrames ? 0 : fold(&visit)
            if folded > 0 {
                lines.append(text(visit, nil, "\("… \(folded) library calls (\(style.fullHint) shows them)", .dim)"))
            }
            let node = tree.nodes[visit.node]
            lines.append(text(visit, Double(node.weight) / total, Self.call(node)))
            let depth = node.children.count > 1 ? visit.depth + 1 : visit.depth
            open += visits(of: visit.node, depth: min(depth, 20), total, &lines)
        }
        return lines
    }

    /// The children to visit. The heaviest comes last, so that it is visited first.
    private func visits(of node: Int, depth: Int, _ total: Double, _ lines: inout [StyledText]) -> [Visit] {
        let parent = tree.nodes[node]
        let shown = parent.children.filter { Double(tree.nodes[$0].weight) / total >= Self.leastShare }
        let left = parent.children.count - shown.count
        if left > 0 {
            lines.append(text(Visit(node: node, depth: depth), nil, "\("… \(left) ways of less than 1 %", .dim)"))
        }
        return shown.sorted { tree.nodes[$0].weight < tree.nodes[$1].weight }
            .map { Visit(node: $0, depth: depth, parentIsOwn: parent.own) }
    }

    /// Skips folded calls, and returns their number.
    private func fold(_ visit: inout Visit) -> Int {
        let (count, node) = tree.folded(from: visit.node, parentIsOwn: visit.parentIsOwn)
        if count > 0 { visit = Visit(node: node, depth: visit.depth) }
        return count
    }

    private func text(_ visit: Visit, _ share: Double?, _ text: StyledText) -> StyledText {
        let percent = share.map { "\(Int(saturating: ($0 * 100).rounded())) %" } ?? ""
        let room = String(repeating: " ", count: max(0, 5 - percent.count))
        return "  \(room)\(percent, .dim) \(String(repeating: "  ", count: visit.depth))\(text)"
    }

    private static func call(_ node: StackTree.Node) -> StyledText {
        let mark: StyledText = node.own ? "\("▶", .bold)" : " "
        let name = StyledText(node.name, node.own ? .bold : nil, limit: 200)
        return "\(mark) \(name)  \(StyledText(node.place ?? "", .dim, limit: 100))"
    }
}
