package import StallReports

/// Formats of merged stacks, for tools that draw flame graphs.
package enum StackFormat: String, CaseIterable, Sendable {
    case html, svg, speedscope, pprof, collapsed

    /// Whether it cannot be shown on a terminal.
    package var isBinary: Bool { self == .pprof }

    /// The whole file.
    ///
    /// - Parameters:
    ///   - subject: What the stacks are of, in a few words: `stalls`, `redis-server (4711)`.
    ///   - summary: A line above the graph of a page.
    package func file(
        of stacks: WeightedStacks,
        _ subject: String,
        summary: String = ""
    ) throws(ReportError) -> [UInt8] {
        switch self {
        case .html: FlameGraphPage.page(around: try FlameGraphView.data(of: stacks, subject, summary))
        case .svg: FlameGraphPicture.file(of: stacks, subject)
        case .speedscope: try SpeedscopeFile.bytes(of: stacks, subject)
        case .pprof: PprofProfile.bytes(of: stacks)
        case .collapsed: CollapsedStacks.bytes(of: stacks)
        }
    }
}

/// Merges the stacks of all reports, and writes them at the end.
struct StackExporter: ReportExporter {
    let format: StackFormat
    private var stacks = WeightedStacks()

    init(_ format: StackFormat) { self.format = format }

    mutating func add(_ report: StallReport) -> [UInt8] {
        stacks.add(report)
        return []
    }

    func end() throws(ReportError) -> [UInt8] { try format.file(of: stacks, "stalls") }
}

/// A flame graph as a picture, the outermost call at the bottom. Each box shows its full name, place and share on hover.
private struct FlameGraphPicture {
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
        let tenths = (share * 1000).rounded()
        let percent = tenths > 0 ? "\(tenths / 10)" : "<0.1"
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

/// One line per stack: `service: label;outermost;…;innermost` and microseconds, or samples.
enum CollapsedStacks {
    static func bytes(of stacks: WeightedStacks) -> [UInt8] {
        let divisor: Int64 =
            switch stacks.unit {
            case .nanoseconds: 1000
            case .samples: 1
            }
        var amounts: [String: Int64] = [:]
        // These characters separate frames and lines.
        let escapes: [Unicode.Scalar: String] = [";": ":", "\n": " "]
        let names = stacks.calls.map { $0.name.escaped(escapes) }
        for (key, weight) in stacks.weights {
            let line = ([key.owner.escaped(escapes)] + key.calls.map { names[$0] }).joined(separator: ";")
            amounts[line, default: 0].addSaturated(weight.amount / divisor)
        }
        return amounts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.flatMap {
            Array("\($0.key) \($0.value)\n".utf8)
        }
    }
}

/// speedscope's file format: one profile for each watched loop or sampled thread.
private struct SpeedscopeFile: Encodable {
    var schema = "https://www.speedscope.app/file-format-schema.json"
    var exporter = "stall-monitor"
    var name: String
    var activeProfileIndex = 0
    var shared: Shared
    var profiles: [Profile]

    private enum CodingKeys: String, CodingKey {
        case schema = "$schema"
        case exporter, name, activeProfileIndex, shared, profiles
    }

    static func bytes(of stacks: WeightedStacks, _ subject: String) throws(ReportError) -> [UInt8] {
        let groups = Dictionary(grouping: stacks.sorted, by: \.key.owner)
        let profiles = groups.sorted { $0.key < $1.key }.map { owner, own in
            Profile(
                name: owner,
                unit: stacks.unit == .samples ? "none" : "nanoseconds",
                endValue: own.map(\.weight.amount).saturatingSum(),
                samples: own.map(\.key.calls),
                weights: own.map(\.weight.amount)
            )
        }
        let frames = stacks.calls.map { Frame(name: $0.name, file: $0.file, line: $0.line) }
        return try ReportJSON.encode(Self(name: plain(subject), shared: Shared(frames: frames), profiles: profiles))
    }

    struct Shared: Encodable {
        var frames: [Frame]
    }

    struct Frame: Encodable {
        var name: String
        var file: String?
        var line: Int?
    }

    struct Profile: Encodable {
        var type = "sampled"
        var name: String
        var unit: String
        var startValue = 0
        var endValue: Int64
        var samples: [[Int]]
        var weights: [Int64]
    }
}
