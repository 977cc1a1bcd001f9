public import StallReports

/// Stacks merged from the outermost call inwards, each call with the share of time that it was on the stack.
///
/// The nodes are in one array and are visited without recursion, so that a very deep stack in a file cannot overflow this
/// process's own stack.
public struct StackTree: Sendable {
    package struct Node: Sendable {
        package let name: String
        package let own: Bool
        package let place: String?
        package var weight: Int64
        package var children: [Int] = []
    }

    /// The first node is the root, which is not a call.
    package private(set) var nodes = [Node(name: "", own: false, place: nil, weight: 0)]
    private var index: [Key: Int] = [:]
    /// Whether there is a stack in it. All its weight may be of stalls without one.
    package private(set) var hasStacks = false

    private struct Key: Hashable {
        let parent: Int
        let name: String
    }

    /// A tree without stacks.
    public init() {}

    /// The largest number of calls of one stack, and of the whole tree.
    package static let depthLimit = 512
    package static let nodeLimit = 65_536

    /// Without frames, the time is that of a call "(no stack)", as in exports.
    ///
    /// - Parameter weight: the time that the stack represents.
    package mutating func add(_ stack: StallReport.Stack, modules: [StallReport.Module], weight: Int64) {
        let weight = max(1, weight)
        nodes[0].weight = nodes[0].weight.addingSaturated(weight)
        let frames = stack.callers(from: 0).suffix(Self.depthLimit)
        if frames.isEmpty { return addWithoutStack(weight) }
        hasStacks = true
        var node = 0
        for frame in frames.reversed() {
            guard let next = child(of: node, for: frame, modules) else { return }
            nodes[next].weight = nodes[next].weight.addingSaturated(weight)
            node = next
        }
    }

    /// Adds the stalled thread's stacks of a report, each with its part of the stall's time, as exports do.
    public mutating func add(_ report: StallReport) {
        let parts = report.stalledParts
        if parts.isEmpty {
            let weight = max(1, report.durationNs)
            nodes[0].weight = nodes[0].weight.addingSaturated(weight)
            return addWithoutStack(weight)
        }
        for part in parts { add(part.stack, modules: report.modules, weight: part.nanoseconds) }
    }

    private mutating func child(
        of parent: Int,
        for frame: StallReport.Frame,
        _ modules: [StallReport.Module]
    ) -> Int? {
        let module = modules.module(of: frame)
        let name = frame.function ?? frame.symbol ?? frame.placeName(in: module?.path)
        return child(of: parent, named: name, own: frame.own) {
            frame.sourcePlace ?? module.map { fileName(ofPath: $0.path) }
        }
    }

    private mutating func addWithoutStack(_ weight: Int64) {
        guard let node = child(of: 0, named: "(no stack)", own: false, at: { nil }) else { return }
        nodes[node].weight = nodes[node].weight.addingSaturated(weight)
    }

    private mutating func child(of parent: Int, named name: String, own: Bool, at place: () -> String?) -> Int? {
        let key = Key(parent: parent, name: name)
        if let known = index[key] { return known }
        guard nodes.count < Self.nodeLimit else { return nil }
        nodes.append(Node(name: name, own: own, place: place(), weight: 0))
        nodes[parent].children.append(nodes.count - 1)
        index[key] = nodes.count - 1
        return nodes.count - 1
    }
}

extension StackTree {
    /// Sorted by weight, heaviest first.
    package func heaviestFirst(_ nodes: [Int]) -> [Int] {
        nodes.sorted { (self.nodes[$1].weight, $0) < (self.nodes[$0].weight, $1) }
    }

    /// The library calls to skip, beginning with a node: those with a single child of the same weight, except those called by own
    /// functions. A single call is not folded.
    ///
    /// - Returns: The number of skipped calls, and the node after them.
    package func folded(from node: Int, parentIsOwn: Bool) -> (count: Int, node: Int) {
        var (count, next, parentIsOwn) = (0, node, parentIsOwn)
        while case let call = nodes[next], !call.own, !parentIsOwn, call.children.count == 1,
            nodes[call.children[0]].weight == call.weight
        {
            (count, next, parentIsOwn) = (count + 1, call.children[0], false)
        }
        return count > 1 ? (count, next) : (0, node)
    }
}

extension StackTree {
    /// A line of the tree as a list: a call, or what is left out at this place.
    public struct Line: Hashable, Sendable {
        /// How often the stacks have parted above it.
        public let depth: Int
        /// What is there.
        public let part: Part

        /// What a line shows.
        public enum Part: Hashable, Sendable {
            /// A call, and its part of the whole time, from 0 to 1.
            case call(Call, share: Double)
            /// So many library calls, one below the other, of which each makes only the next one.
            case folded(Int)
            /// So many calls that take less than a hundredth of the time.
            case rare(Int)
            /// The list is too long.
            case more
        }
    }

    /// A function that was called.
    public struct Call: Hashable, Sendable {
        /// Its name as in the report.
        public let name: String
        /// Its file and line, or its module.
        public let place: String?
        /// Whether it is the server's own code.
        public let own: Bool
    }

    private static let lineLimit = 200
    /// Paths with a smaller share are counted but not shown.
    private static let leastShare = 0.01

    private struct Visit {
        var node: Int
        var depth: Int
        var parentIsOwn = false
    }

    /// The tree as a list, the outermost call first and the heaviest of several callees first. Empty if there is no stack in it.
    ///
    /// - Parameter showsAll: Whether library calls are shown, too, that would be folded.
    public func lines(showsAll: Bool = false) -> [Line] {
        guard hasStacks else { return [] }
        var lines: [Line] = []
        var open = visits(of: 0, depth: 0, &lines)
        while var visit = open.popLast() {
            guard lines.count < Self.lineLimit else { return lines + [Line(depth: 0, part: .more)] }
            if !showsAll {
                let (count, node) = folded(from: visit.node, parentIsOwn: visit.parentIsOwn)
                if count > 0 {
                    visit = Visit(node: node, depth: visit.depth)
                    lines.append(Line(depth: visit.depth, part: .folded(count)))
                }
            }
            let node = nodes[visit.node]
            let call = Call(name: node.name, place: node.place, own: node.own)
            lines.append(Line(depth: visit.depth, part: .call(call, share: share(visit.node))))
            let depth = node.children.count > 1 ? visit.depth + 1 : visit.depth
            open += visits(of: visit.node, depth: min(depth, 20), &lines)
        }
        return lines
    }

    private func share(_ node: Int) -> Double { Double(nodes[node].weight) / Double(max(1, nodes[0].weight)) }

    /// The children to visit. The heaviest comes last, so that it is visited first.
    private func visits(of node: Int, depth: Int, _ lines: inout [Line]) -> [Visit] {
        let parent = nodes[node]
        let shown = parent.children.filter { share($0) >= Self.leastShare }
        let left = parent.children.count - shown.count
        if left > 0 { lines.append(Line(depth: depth, part: .rare(left))) }
        return shown.sorted { nodes[$0].weight < nodes[$1].weight }
            .map { Visit(node: $0, depth: depth, parentIsOwn: parent.own) }
    }
}
