package import StallReports

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

/// How the blocked time of many reports is distributed: stacks with nanoseconds. The times of all stacks add up to the duration
/// of the stalls.
package struct WeightedStacks {
    /// One function at one source line.
    package struct Call: Hashable {
        package var name: String
        /// The path of the executable or library.
        package var module: String?
        package var buildID: String?
        package var file: String?
        package var line: Int?
        package var isOwn = false
    }

    /// Equal for stalls that are shown as one.
    package struct Key: Hashable {
        /// The label of the watched loop.
        package var label: String
        package var service: String
        package var verdict: String
        /// Indices in `calls`, the outermost first.
        package var calls: [Int]

        fileprivate var texts: (String, String, String) { (label, service, verdict) }
    }

    package struct Weight {
        package var nanoseconds: Int64 = 0
        /// The same in the earlier one of two compared sets.
        package var before: Int64 = 0
        /// The number of stalls in which it was seen.
        package var stalls: Int64 = 0
    }

    package private(set) var calls: [Call] = []
    package private(set) var weights: [Key: Weight] = [:]
    private var numbers: [Call: Int] = [:]

    package init() {}

    /// Heaviest first; equal ones in a deterministic order.
    package var sorted: [(key: Key, weight: Weight)] {
        weights.map { (key: $0.key, weight: $0.value) }.sorted { one, other in
            guard one.weight.nanoseconds == other.weight.nanoseconds else {
                return one.weight.nanoseconds > other.weight.nanoseconds
            }
            let (texts, others) = (one.key.texts, other.key.texts)
            if texts != others { return texts < others }
            return one.key.calls.lexicographicallyPrecedes(other.key.calls)
        }
    }

    /// - Parameter isBefore: Whether the report is of the earlier one of two compared sets.
    package mutating func add(_ report: StallReport, isBefore: Bool = false) {
        let stalled = report.stacks.filter { $0.role == .stalled }
        let parts = stalled.isEmpty ? [nil] : stalled.map(Optional.some)
        let shares = Self.shares(of: parts, in: report.durationNs)
        for (stack, share) in zip(parts, shares) {
            let key = Key(
                label: plain(report.watched.label),
                service: plain(report.service?.name ?? ""),
                verdict: report.cause.verdict.canonical.rawValue,
                calls: stack.map { callNumbers(of: $0, in: report) } ?? [number(of: Call(name: "(no stack)"))]
            )
            if isBefore {
                weights[key, default: Weight()].before.addSaturated(share)
            } else {
                weights[key, default: Weight()].nanoseconds.addSaturated(share)
            }
            weights[key, default: Weight()].stalls.addSaturated(1)
        }
    }

    /// The stalls' time divided in proportion to the time that each stack represents; evenly if that was not counted.
    private static func shares(of stacks: [StallReport.Stack?], in duration: Int64) -> [Int64] {
        let times = stacks.map { max(0, $0?.sampledNs ?? 0) }
        let sum = Double(times.saturatingSum())
        let parts = sum > 0 ? times.map { Double($0) / sum } : times.map { _ in 1 / Double(times.count) }
        return parts.map { Int64(saturating: Double(duration) * $0) }
    }

    private mutating func callNumbers(of stack: StallReport.Stack, in report: StallReport) -> [Int] {
        var frames = stack.callers(from: 0).map { call($0, in: report) }
        if frames.isEmpty { return [number(of: Call(name: "(no stack)"))] }
        // After an awaited function there is no gap: its callers are not on the stack.
        if let gap = stack.leftOut, gap.count > 0, gap.after >= 0,
            gap.after <= min(frames.count, stack.async?.from ?? .max)
        {
            frames.insert(Call(name: "… \(gap.count) frames left out"), at: gap.after)
        }
        return frames.reversed().map { number(of: $0) }
    }

    private func call(_ frame: StallReport.Frame, in report: StallReport) -> Call {
        let module = frame.module.flatMap { report.modules.indices.contains($0) ? report.modules[$0] : nil }
        return Call(
            name: plain(frame.function ?? frame.symbol ?? frame.placeName(in: module?.path)),
            module: module.map { plain($0.path) },
            buildID: module?.buildID.map { plain($0) },
            file: frame.file.map { plain($0) },
            line: frame.line.flatMap { $0 > 0 ? $0 : nil },
            isOwn: frame.own
        )
    }

    private mutating func number(of call: Call) -> Int {
        if let known = numbers[call] { return known }
        numbers[call] = calls.count
        calls.append(call)
        return calls.count - 1
    }
}

/// Without characters that other programs would interpret.
func plain(_ text: String) -> String { VisibleText.of(text, limit: 500) }

extension Int64 {
    mutating func addSaturated(_ other: Int64) { self = addingSaturated(other) }
}
