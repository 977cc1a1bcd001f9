package import StallReports

/// Merged stacks with their weights: the blocked time of many reports, which adds up to the duration of the stalls, or samples of
/// a process.
package struct WeightedStacks {
    /// What a weight counts.
    package enum Unit: Sendable {
        case nanoseconds, samples

        /// `600ms`, or `12 samples`.
        func text(_ amount: Int64) -> String {
            switch self {
            case .nanoseconds: DurationText(nanoseconds: amount).short
            case .samples: quantity(amount, "sample")
            }
        }
    }

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
        /// The label of the watched loop, or the sampled thread.
        package var label: String
        package var service = ""
        package var verdict = ""
        /// Indices in `calls`, the outermost first.
        package var calls: [Int]

        /// What the stack belongs to. It includes the service, because loops of two services may have one label.
        var owner: String { service.isEmpty ? label : "\(service): \(label)" }

        fileprivate var texts: (String, String, String) { (label, service, verdict) }
    }

    package struct Weight {
        /// In the set's unit.
        package var amount: Int64 = 0
        /// The same in the earlier one of two compared sets.
        package var before: Int64 = 0
        /// The number of stalls in which it was seen.
        package var stalls: Int64 = 0
    }

    package let unit: Unit
    /// Unix time of the earliest stall or sample, in nanoseconds.
    private(set) var earliest: Int64?

    package private(set) var weights: [Key: Weight] = [:]
    private var known = Interned<Call>()

    package var calls: [Call] { known.all }

    package init(unit: Unit = .nanoseconds) { self.unit = unit }

    /// Heaviest first; equal ones in a deterministic order.
    package var sorted: [(key: Key, weight: Weight)] {
        weights.map { (key: $0.key, weight: $0.value) }.sorted { one, other in
            guard one.weight.amount == other.weight.amount else {
                return one.weight.amount > other.weight.amount
            }
            let (texts, others) = (one.key.texts, other.key.texts)
            if texts != others { return texts < others }
            return one.key.calls.lexicographicallyPrecedes(other.key.calls)
        }
    }

    /// All weights together.
    var total: Int64 { weights.values.map(\.amount).saturatingSum() }

    /// Adds samples of one stack.
    ///
    /// - Parameters:
    ///   - thread: The name under which the stack appears.
    ///   - modules: Those to which its frames refer.
    ///   - moment: When the first sample was taken.
    package mutating func add(
        _ samples: Int,
        of thread: String,
        _ stack: StallReport.Stack,
        _ modules: [StallReport.Module],
        at moment: Timestamp
    ) {
        let key = Key(label: plain(thread), calls: callNumbers(of: stack, modules))
        weights[key, default: Weight()].amount.addSaturated(Int64(samples))
        note(moment)
    }

    /// - Parameter isBefore: Whether the report is of the earlier one of two compared sets.
    package mutating func add(_ report: StallReport, isBefore: Bool = false) {
        let stalled = report.stalledParts
        let parts: [(stack: StallReport.Stack?, nanoseconds: Int64)] =
            stalled.isEmpty ? [(nil, max(0, report.durationNs))] : stalled.map { ($0.stack, $0.nanoseconds) }
        let side: WritableKeyPath<Weight, Int64> = isBefore ? \.before : \.amount
        note(report.startedAt)
        var counted: Set<Key> = []
        for (stack, share) in parts {
            let key = Key(
                label: plain(report.watched.label),
                service: plain(report.service?.name ?? ""),
                verdict: report.cause.verdict.canonical.rawValue,
                calls: stack.map { callNumbers(of: $0, report.modules) } ?? [known.number(of: Call(name: "(no stack)"))]
            )
            weights[key, default: Weight()][keyPath: side].addSaturated(share)
            // Stacks that differ in addresses alone are one here.
            if counted.insert(key).inserted { weights[key, default: Weight()].stalls.addSaturated(1) }
        }
    }

    private mutating func note(_ moment: Timestamp) {
        earliest = min(moment.unixNanoseconds, earliest ?? moment.unixNanoseconds)
    }

    private mutating func callNumbers(of stack: StallReport.Stack, _ modules: [StallReport.Module]) -> [Int] {
        var frames = stack.callers(from: 0).map { call($0, modules) }
        if frames.isEmpty { return [known.number(of: Call(name: "(no stack)"))] }
        // After an awaited function there is no gap: its callers are not on the stack.
        if let gap = stack.leftOut, gap.count > 0, gap.after >= 0,
            gap.after <= min(frames.count, stack.async?.from ?? .max)
        {
            frames.insert(Call(name: "… \(gap.count) frames left out"), at: gap.after)
        }
        return frames.reversed().map { known.number(of: $0) }
    }

    private func call(_ frame: StallReport.Frame, _ modules: [StallReport.Module]) -> Call {
        let module = modules.module(of: frame)
        return Call(
            name: frame.plainName(module),
            module: module.map { plain($0.path) },
            buildID: module?.buildID.map { plain($0) },
            file: frame.file.map { plain($0) },
            line: frame.line.flatMap { $0 > 0 ? $0 : nil },
            isOwn: frame.own
        )
    }
}

/// Equal values get one number.
struct Interned<Value: Hashable> {
    private(set) var all: [Value] = []
    private var numbers: [Value: Int] = [:]

    mutating func number(of value: Value) -> Int {
        if let known = numbers[value] { return known }
        numbers[value] = all.count
        all.append(value)
        return all.count - 1
    }
}

extension StallReport {
    /// The culprit's stack, or without a culprit the first of the stalled thread, with the functions that await it. Innermost first.
    var framesOfCulprit: [Frame] {
        let stack = culprit.flatMap { stacks.indices.contains($0.stack) ? stacks[$0.stack] : nil }
        return (stack ?? stacks.first { $0.role == .stalled })?.callers(from: 0) ?? []
    }
}

extension StallReport.Frame {
    /// The function, its symbol, or the place of one without a name.
    func plainName(_ module: StallReport.Module?) -> String { plain(function ?? symbol ?? placeName(in: module?.path)) }
}

/// Without characters that other programs would interpret.
func plain(_ text: String) -> String { VisibleText.of(text, limit: 500) }

extension String {
    /// With replacements for some characters. Works by scalar: a "<" with an accent, or after a letter that joins it, is no
    /// character of its own in Swift, but other programs see it.
    func escaped(_ replacements: [Unicode.Scalar: String]) -> String {
        guard unicodeScalars.contains(where: { replacements[$0] != nil }) else { return self }
        var result = ""
        for scalar in unicodeScalars {
            if let text = replacements[scalar] { result += text } else { result.unicodeScalars.append(scalar) }
        }
        return result
    }
}

extension Int64 {
    mutating func addSaturated(_ other: Int64) { self = addingSaturated(other) }
}
