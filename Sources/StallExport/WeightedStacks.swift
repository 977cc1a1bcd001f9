package import StallReports

/// Where the blocked time of many reports went: stacks with nanoseconds. The times of all stacks add up to the length of the stalls.
package struct WeightedStacks {
    /// One function at one place of its source.
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
        /// The watched thing.
        package var label: String
        package var service: String
        package var verdict: String
        /// In `calls`, the outermost first.
        package var calls: [Int]

        fileprivate var texts: (String, String, String) { (label, service, verdict) }
    }

    package struct Weight {
        package var nanoseconds: Int64 = 0
        /// Stalls in which it was seen.
        package var stalls: Int64 = 0
    }

    package private(set) var calls: [Call] = []
    package private(set) var weights: [Key: Weight] = [:]
    private var numbers: [Call: Int] = [:]

    package init() {}

    /// The heaviest first; of equal ones, in an order that is the same every time.
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

    package mutating func add(_ report: StallReport) {
        let stalled = report.stacks.filter { $0.role == .stalled }
        let parts = stalled.isEmpty ? [nil] : stalled.map(Optional.some)
        let shares = Self.shares(of: parts, in: report.durationNs)
        for (stack, share) in zip(parts, shares) {
            let key = Key(
                label: plain(report.watched.label),
                service: plain(report.service?.name ?? ""),
                verdict: report.cause.verdict.rawValue,
                calls: stack.map { callNumbers(of: $0, in: report) } ?? [number(of: Call(name: "(no stack)"))]
            )
            weights[key, default: Weight()].nanoseconds.addSaturated(share)
            weights[key, default: Weight()].stalls.addSaturated(1)
        }
    }

    /// By the time that each stack stands for; evenly where nobody counted.
    private static func shares(of stacks: [StallReport.Stack?], in duration: Int64) -> [Int64] {
        let times = stacks.map { max(0, $0?.sampledNs ?? 0) }
        let sum = Double(times.saturatingSum())
        let parts = sum > 0 ? times.map { Double($0) / sum } : times.map { _ in 1 / Double(times.count) }
        return parts.map { Int64(saturating: Double(duration) * $0) }
    }

    private mutating func callNumbers(of stack: StallReport.Stack, in report: StallReport) -> [Int] {
        var frames = stack.callers(from: 0).map { call($0, in: report) }
        if frames.isEmpty { return [number(of: Call(name: "(no stack)"))] }
        // Behind a function that is awaited there is no gap: its callers are not on the stack.
        if let gap = stack.leftOut, gap.count > 0,
            (0...min(frames.count, stack.async?.from ?? .max)).contains(gap.after)
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

/// Without characters that other programs would obey.
func plain(_ text: String) -> String { VisibleText.of(text, limit: 500) }

extension Int64 {
    mutating func addSaturated(_ other: Int64) { self = addingSaturated(other) }
}
