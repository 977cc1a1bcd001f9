import StallReports

/// Merged stacks as one tree. Children are sorted by weight, the heaviest first.
struct FlameGraph {
    /// Deeper levels are cut: they are not useful, and a report can contain a thousand frames of a recursion.
    static let maximumDepth = 250

    struct Node {
        var name: String
        /// The source line of the first of its calls; without lines, the module.
        var place: String?
        var module: String?
        /// Equal in all boxes of one function. Nil for the root.
        var function: Int?
        var isOwn: Bool
        /// In the stacks' unit.
        var amount: Int64 = 0
        /// The same in the earlier one of two compared sets.
        var before: Int64 = 0
        var both: Int64 { amount.addingSaturated(before) }
        var children: [Node] = []
    }

    private(set) var root: Node
    let unit: WeightedStacks.Unit

    /// The number of levels below the root.
    var depth: Int { Self.depth(of: root) - 1 }

    init(_ stacks: WeightedStacks) {
        let merging = Merging(stacks)
        unit = stacks.unit
        root = Node(name: unit == .samples ? "all samples" : "all stalls", isOwn: false)
        root.children = merging.roots
        root.amount = root.children.map(\.amount).saturatingSum()
        root.before = root.children.map(\.before).saturatingSum()
    }

    private static func depth(of node: Node) -> Int { 1 + (node.children.map(depth).max() ?? 0) }
}

/// Merges many stacks into one tree. Calls are compared by number; a node is created for each box, not for each call of each
/// stack.
private struct Merging {
    private let weights: [WeightedStacks.Weight]
    /// For each stack the numbers of its calls. The first one is its watched loop or sampled thread, as if that were a call.
    private let paths: [[Int]]
    private let calls: [WeightedStacks.Call]
    /// For each call the number of its function, whatever the line.
    private let functions: [Int]

    private struct Function: Hashable {
        var name: String
        var module: String?
    }

    init(_ stacks: WeightedStacks) {
        let (sorted, count) = (stacks.sorted, stacks.calls.count)
        weights = sorted.map(\.weight)
        paths = sorted.enumerated().map { [count + $0.offset] + $0.element.key.calls }
        calls = stacks.calls + sorted.map { WeightedStacks.Call(name: $0.key.owner) }
        var known = Interned<Function>()
        functions = calls.map { known.number(of: Function(name: $0.name, module: $0.module)) }
    }

    /// One for each watched loop or sampled thread.
    var roots: [FlameGraph.Node] { boxes(of: Array(paths.indices), depth: 0) }

    /// Groups stacks with the same beginning by their next call. Stacks that end here are left out.
    private func boxes(of members: [Int], depth: Int) -> [FlameGraph.Node] {
        guard depth <= FlameGraph.maximumDepth else { return [] }
        let longer = members.filter { paths[$0].count > depth }
        return Dictionary(grouping: longer) { functions[paths[$0][depth]] }.values.map { members in
            let call = calls[paths[members[0]][depth]]
            return FlameGraph.Node(
                name: call.name,
                place: call.file.map { file in call.line.map { "\(file):\($0)" } ?? file } ?? call.module,
                module: call.module,
                function: functions[paths[members[0]][depth]],
                isOwn: call.isOwn,
                amount: members.map { weights[$0].amount }.saturatingSum(),
                before: members.map { weights[$0].before }.saturatingSum(),
                children: boxes(of: members, depth: depth + 1)
            )
        }.sorted { ($1.both, $0.name, $0.module ?? "") < ($0.both, $1.name, $1.module ?? "") }
    }
}

/// One self-contained page for a browser: a flame graph that can be zoomed and searched, and a table of the stalls.
struct FlameGraphPage: ReportExporter {
    private var view = FlameGraphView()

    mutating func add(_ report: StallReport) throws(ReportError) -> [UInt8] { try view.add(report) }

    func end() throws(ReportError) -> [UInt8] {
        Self.page(around: try view.end())
    }

    /// A page around data that is already embedded.
    static func page(around data: [UInt8]) -> [UInt8] { Array(head.utf8) + data + Array(tail.utf8) }

    private static let head = """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
        <title>Stalls</title>
        <style>
        \(FlameGraphView.style)</style>
        </head>
        <body>
        \(FlameGraphView.markup)<script type="application/json" id="data">
        """

    private static let tail = """
        </script>
        <script>
        \(FlameGraphView.script)</script>
        </body>
        </html>

        """
}
