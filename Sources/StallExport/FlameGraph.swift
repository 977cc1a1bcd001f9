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
    private let stacks: [(key: WeightedStacks.Key, weight: WeightedStacks.Weight)]
    private let calls: [WeightedStacks.Call]
    /// For each call the number of its function, whatever the line.
    private let functions: [Int]

    private struct Function: Hashable {
        var name: String
        var module: String?
    }

    init(_ stacks: WeightedStacks) {
        (self.stacks, calls) = (stacks.sorted, stacks.calls)
        var known = Interned<Function>()
        functions = stacks.calls.map { known.number(of: Function(name: $0.name, module: $0.module)) }
    }

    /// One for each watched loop or sampled thread.
    var roots: [FlameGraph.Node] {
        boxes(of: Array(stacks.indices), depth: 0) { [stacks] in
            Self.name(of: stacks[$0].key)
        } node: { [stacks] in
            FlameGraph.Node(name: Self.name(of: stacks[$0].key), isOwn: false)
        }
    }

    /// Groups stacks with the same beginning by their next call. Stacks that end here are left out.
    private func children(of members: [Int], depth: Int) -> [FlameGraph.Node] {
        guard depth < FlameGraph.maximumDepth else { return [] }
        let longer = members.filter { stacks[$0].key.calls.count > depth }
        return boxes(of: longer, depth: depth + 1) { [stacks, functions] in
            functions[stacks[$0].key.calls[depth]]
        } node: { [stacks, calls] in
            Self.node(of: calls[stacks[$0].key.calls[depth]])
        }
    }

    /// - Parameter depth: The number of outer calls before the boxes' children.
    private func boxes<Group: Hashable>(
        of members: [Int],
        depth: Int,
        by group: (Int) -> Group,
        node: (Int) -> FlameGraph.Node
    ) -> [FlameGraph.Node] {
        Dictionary(grouping: members, by: group).values.map { members in
            var box = node(members[0])
            box.amount = members.map { stacks[$0].weight.amount }.saturatingSum()
            box.before = members.map { stacks[$0].weight.before }.saturatingSum()
            box.children = children(of: members, depth: depth)
            return box
        }.sorted { ($1.both, $0.name, $0.module ?? "") < ($0.both, $1.name, $1.module ?? "") }
    }

    private static func name(of key: WeightedStacks.Key) -> String {
        key.service.isEmpty ? key.label : "\(key.service): \(key.label)"
    }

    private static func node(of call: WeightedStacks.Call) -> FlameGraph.Node {
        FlameGraph.Node(
            name: call.name,
            place: call.file.map { file in call.line.map { "\(file):\($0)" } ?? file } ?? call.module,
            module: call.module,
            isOwn: call.isOwn
        )
    }
}

/// A flame graph as a picture, the outermost call at the bottom. Each box shows its full name, place and share on hover.
struct FlameGraphPicture {
    private static let (width, lineHeight, margin) = (1200.0, 17.0, 24.0)
    /// The width, in pixels, below which boxes are left out.
    private static let least = 0.3

    private let graph: FlameGraph

    static func file(of stacks: WeightedStacks, _ subject: String) -> [UInt8] {
        let graph = FlameGraph(stacks)
        let height = Double(graph.depth + 1) * lineHeight + 2 * margin
        let title =
            switch stacks.unit {
            case .nanoseconds: "Where the time of \(stacks.unit.text(graph.root.amount)) of \(subject) went"
            case .samples: "\(stacks.unit.text(graph.root.amount)) of \(subject)"
            }
        var text = """
            <?xml version="1.0" encoding="UTF-8"?>
            <svg xmlns="http://www.w3.org/2000/svg" width="\(Int(width))" height="\(Int(height))" \
            viewBox="0 0 \(Int(width)) \(Int(height))" font-family="ui-monospace, monospace" font-size="11">
            <rect width="100%" height="100%" fill="#fff"/>
            <text x="8" y="16" fill="#444">\(escaped(plain(title)))</text>

            """
        Self(graph: graph).draw(graph.root, x: 0, y: height - margin - lineHeight, into: &text)
        return Array((text + "</svg>\n").utf8)
    }

    private func draw(_ node: FlameGraph.Node, x: Double, y: Double, into text: inout String) {
        let share = graph.root.amount > 0 ? Double(node.amount) / Double(graph.root.amount) : 0
        let width = share * Self.width
        guard width >= Self.least else { return }
        let percent = Double(Int(share * 1000)) / 10
        let place = node.place.map { "\n\($0)" } ?? ""
        let letters = Int((width - 6) / 6.7)
        let label = letters < 3 ? "" : VisibleText.of(node.name, limit: letters)
        text += """
            <g><title>\(Self.escaped("\(node.name)\(place)\n\(graph.unit.text(node.amount)), \(percent) %"))</title>\
            <rect x="\(Self.rounded(x))" y="\(Self.rounded(y))" width="\(Self.rounded(max(width - 0.5, 0.3)))" height="\(Int(Self.lineHeight) - 1)" rx="1" \
            fill="\(node.isOwn ? "#e8833a" : "#e5d9c3")"/>\
            <text x="\(Self.rounded(x + 3))" y="\(Self.rounded(y + 12))">\(Self.escaped(label))</text></g>

            """
        var left = x
        for child in node.children {
            draw(child, x: left, y: y - Self.lineHeight, into: &text)
            left += graph.root.amount > 0 ? Double(child.amount) / Double(graph.root.amount) * Self.width : 0
        }
    }

    private static func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }

    /// Escaped for XML or HTML.
    static func escaped(_ text: String) -> String {
        text.escaped(["&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;"])
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
