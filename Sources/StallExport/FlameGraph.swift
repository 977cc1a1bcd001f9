package import StallReports

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

/// A self-contained page that compares two sets of stalls: a flame graph coloured by what changed, and a table of the faults.
///
/// A box is as wide as its time in both sets together, so that code is visible that stalls in one set only. Red: more time after
/// than before; blue: less; grey: the same.
package struct FlameGraphDifference {
    /// One of the two sets.
    package struct Side: Sendable {
        /// As the user named it.
        package var name: String
        /// The watched time in nanoseconds; 0 if unknown. Times are compared per hour watched if it is known of both sides.
        package var watchedNs: Int64

        /// Creates a side with this name.
        package init(name: String, watchedNs: Int64) { (self.name, self.watchedNs) = (name, watchedNs) }
    }

    private let before: Side
    private let after: Side
    private var stacks = WeightedStacks()

    /// Creates a comparison without reports.
    package init(before: Side, after: Side) { (self.before, self.after) = (before, after) }

    /// Adds a report of the earlier set, or of the later one.
    package mutating func add(_ report: StallReport, isBefore: Bool) { stacks.add(report, isBefore: isBefore) }

    /// The page as HTML.
    ///
    /// - Parameters:
    ///   - summary: A line above the graph.
    ///   - columns: The table's headings.
    ///   - rows: Its rows, with a text for each column.
    /// - Throws: If the data cannot be encoded.
    package func page(summary: String, columns: [String], rows: [[String]]) throws(ReportError) -> [UInt8] {
        let isRate = before.watchedNs > 0 && after.watchedNs > 0
        var root = FlameGraph(stacks).root
        if isRate { root.scale(by: (Self.perHour(after), Self.perHour(before))) }
        let sides = Sides(
            before: plain(before.name),
            after: plain(after.name),
            rate: isRate,
            summary: plain(summary),
            columns: columns
        )
        let content = Content(
            graph: .init(root, isCompared: true),
            stalls: rows.map { $0.map { plain($0) } },
            sides: sides
        )
        return FlameGraphPage.page(around: FlameGraphView.embedded(try ReportJSON.encode(content)))
    }

    private static func perHour(_ side: Side) -> Double { 3_600_000_000_000 / Double(side.watchedNs) }

    private struct Content: Encodable {
        let graph: FlameGraphView.Box
        let stalls: [[String]]
        let sides: Sides
    }

    private struct Sides: Encodable {
        let before: String
        let after: String
        let rate: Bool
        let summary: String
        let columns: [String]
    }
}

extension FlameGraph.Node {
    fileprivate mutating func scale(by factors: (after: Double, before: Double)) {
        amount = Int64(saturating: Double(amount) * factors.after)
        before = Int64(saturating: Double(before) * factors.before)
        for index in children.indices { children[index].scale(by: factors) }
    }
}
