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

/// One line per stack: `label;outermost;…;innermost` and microseconds, or samples.
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
            let line = ([key.label.escaped(escapes)] + key.calls.map { names[$0] }).joined(separator: ";")
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
        let groups = Dictionary(grouping: stacks.sorted, by: \.key.label)
        let profiles = groups.sorted { $0.key < $1.key }.map { label, own in
            Profile(
                name: label,
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
