internal import StallReports

// Formats with merged stacks, for tools that draw flame graphs.

/// One line per stack: `label;outermost;…;innermost microseconds`.
struct CollapsedExporter: ReportExporter {
    private var stacks = WeightedStacks()

    mutating func add(_ report: StallReport) -> [UInt8] {
        stacks.add(report)
        return []
    }

    func end() -> [UInt8] {
        var times: [String: Int64] = [:]
        for (key, weight) in stacks.weights {
            let names = [key.label] + key.calls.map { stacks.calls[$0].name }
            // These characters separate frames and lines.
            let line = names.map { $0.replacing(";", with: ":").replacing("\n", with: " ") }.joined(separator: ";")
            times[line, default: 0].addSaturated(weight.nanoseconds / 1000)
        }
        return times.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.flatMap {
            Array("\($0.key) \($0.value)\n".utf8)
        }
    }
}

/// speedscope's file format: one profile for each watched loop.
struct SpeedscopeExporter: ReportExporter {
    private var stacks = WeightedStacks()

    mutating func add(_ report: StallReport) -> [UInt8] {
        stacks.add(report)
        return []
    }

    func end() throws(ReportError) -> [UInt8] {
        let sorted = stacks.sorted
        let profiles = Set(sorted.map(\.key.label)).sorted().map { label in
            let own = sorted.filter { $0.key.label == label }
            return Profile(
                name: label,
                endValue: own.map(\.weight.nanoseconds).saturatingSum(),
                samples: own.map(\.key.calls),
                weights: own.map(\.weight.nanoseconds)
            )
        }
        return try line(
            File(
                shared: Shared(frames: stacks.calls.map { .init(name: $0.name, file: $0.file, line: $0.line) }),
                profiles: profiles
            )
        )
    }

    private struct File: Encodable {
        var schema = "https://www.speedscope.app/file-format-schema.json"
        var exporter = "stall-monitor"
        var name = "stalls"
        var activeProfileIndex = 0
        var shared: Shared
        var profiles: [Profile]

        private enum CodingKeys: String, CodingKey {
            case schema = "$schema"
            case exporter, name, activeProfileIndex, shared, profiles
        }
    }

    private struct Shared: Encodable {
        var frames: [Frame]
    }

    private struct Frame: Encodable {
        var name: String
        var file: String?
        var line: Int?
    }

    private struct Profile: Encodable {
        var type = "sampled"
        var name: String
        var unit = "nanoseconds"
        var startValue = 0
        var endValue: Int64
        var samples: [[Int]]
        var weights: [Int64]
    }
}
