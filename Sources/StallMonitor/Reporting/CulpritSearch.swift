import StallReports
import Symbolication

/// Finds the function to blame for a stall, by its samples. Pure: the same samples give the same result, and a few samples of a
/// fault give the same result as many.
///
/// A function is on the stack in many samples either because it runs for long, or because a function that runs for long calls it
/// again and again. The culprit is the innermost function that
/// - stays: every sample from the first that shows it to the last one does, and these make up three quarters of the time and half
///   of the samples. A function that comes and goes in between is a helper; one that was there for a short while at the beginning
///   or end does not count;
/// - is not called anew all the time: if the caller has run on between most samples (it is at another call, or its registers
///   changed), the caller is the one that loops, and what it calls is a helper, even if it is in all samples.
///
/// Of a pool's workers it is the innermost function in which most of them are: more than half of the time of all.
///
/// Only functions of one kind are considered, the first kind in ``CandidateKind`` that makes up a quarter of the time. Samples
/// without a function of that kind do not count against it.
struct CulpritSearch {
    /// One sample, or several equal ones.
    struct Sample {
        var stack: StallReport.Stack
        /// How much of the stall's time it represents.
        var span: Duration
        /// The state of each frame that is not inlined, innermost first: see `CapturedStack.Frame.state`. Empty: unknown.
        var states: [UInt64?] = []
    }

    /// The sample that shows the culprit best, and the culprit's place in it.
    let sample: Int
    let candidate: CulpritCandidate
    /// The frames that identify the fault, from the culprit outwards: without own functions that only some of the samples show.
    let frames: [StallReport.Frame]

    private static let leastShare = 4

    /// - Parameter samples: in the order of time; those of several threads, a pool's workers, with equal stacks side by side. Nil if none
    ///   shows a candidate.
    init?(_ samples: [Sample]) {
        var names = FunctionNames()
        let group = Self.traces(samples, &names)
        guard !group.isEmpty else { return nil }
        let looping = Self.loopingLevel(samples)
        let isPool = Set(samples.map(\.stack.thread.id)).count > 1
        let (seen, staying) = Self.staying(group, isPool)
        let picks = seen.map { trace in
            Pick(of: trace, staying, outside: looping.flatMap { samples[trace.sample].stack.start(ofLevel: $0) })
        }
        // First the function is chosen, then the path to it: each time the one with the most time.
        let function = Self.heaviest(picks.map { ($0.function.name, $0.trace.span) })
        let chosen = picks.filter { $0.function.name == function }
        let path = Self.heaviest(chosen.map { ($0.path, $0.trace.span) })
        guard let best = chosen.first(where: { $0.path == path }) else { return nil }
        (sample, candidate) = (best.trace.sample, best.function.candidate)
        let outwards = samples[sample].stack.frames(from: candidate)
        let passing = Set(seen.flatMap(\.names)).subtracting(staying)
        frames = outwards.enumerated().filter { index, frame in
            index == 0 || !frame.own || (!frame.isMerged && !passing.contains(names.name(of: frame)))
        }.map(\.element)
    }

    // MARK: What a sample shows

    private struct Function {
        var name: String
        var candidate: CulpritCandidate
        /// Its place among the calls of the stack, counted from the innermost.
        var place: Int
    }

    private struct Trace {
        var sample: Int
        var span: Duration
        var samples: Int
        /// The candidates, innermost first.
        var functions: [Function]
        var names: Set<String>

        init(_ sample: Sample, at index: Int, _ kind: CandidateKind, _ names: inout FunctionNames) {
            let stack = sample.stack
            (self.sample, span, samples) = (index, sample.span, min(1_000, max(1, stack.count)))
            functions = stack.candidates(of: kind).map { candidate, place in
                Function(name: names.name(of: stack.frame(candidate)), candidate: candidate, place: place)
            }
            self.names = Set(functions.map(\.name))
        }
    }

    /// The function to blame by one sample.
    private struct Pick {
        let trace: Trace
        /// The innermost of the functions that stay, but not inside the one that loops. The innermost of all if none is further
        /// out.
        let function: Function
        /// The functions that stay, from this one outwards.
        let path: [String]

        init(of trace: Trace, _ staying: Set<String>, outside looping: Int?) {
            let all = trace.functions.filter { staying.contains($0.name) }
            let function = all.first { $0.place >= looping ?? 0 } ?? all.first ?? trace.functions[0]
            (self.trace, self.function) = (trace, function)
            path = all.filter { $0.place >= function.place }.map(\.name)
        }
    }

    /// The samples that show a candidate of the best kind.
    private static func traces(_ samples: [Sample], _ names: inout FunctionNames) -> [Trace] {
        let whole = samples.indices.filter { samples[$0].stack.complete }
        let total = span(samples, Array(samples.indices))
        let used = span(samples, whole) * 2 >= total ? whole : Array(samples.indices)
        for kind in CandidateKind.allCases {
            let found = used.map { Trace(samples[$0], at: $0, kind, &names) }.filter { !$0.functions.isEmpty }
            if !found.isEmpty, span(samples, found.map(\.sample)) * leastShare >= span(samples, used) { return found }
        }
        return []
    }

    private static func span(_ samples: [Sample], _ indices: [Int]) -> Duration {
        indices.reduce(.zero) { $0 + samples[$1].span }
    }

    // MARK: What stays

    /// The functions that stay, and the samples that show them. If no function stays in all samples, only the samples with the
    /// function that was seen for longest are used.
    private static func staying(_ traces: [Trace], _ isPool: Bool) -> (traces: [Trace], names: Set<String>) {
        let names = staying(in: traces, isPool)
        guard names.isEmpty else { return (traces.filter { !$0.names.isDisjoint(with: names) }, names) }
        let all = traces.flatMap { trace in trace.names.map { ($0, trace.span) } }
        guard let longest = heaviest(all.sorted { $0.0 < $1.0 }) else { return (traces, []) }
        let group = traces.filter { $0.names.contains(longest) }
        return (group, staying(in: group, isPool))
    }

    private static func staying(in traces: [Trace], _ isPool: Bool) -> Set<String> {
        var (shown, spans, samples): ([String: [Int]], [Duration], [Int]) = ([:], [.zero], [0])
        for (index, trace) in traces.enumerated() {
            for name in trace.names { shown[name, default: []].append(index) }
            spans.append(spans[index] + trace.span)
            samples.append(samples[index] + trace.samples)
        }
        let (total, number) = (spans[traces.count], samples[traces.count])
        let names = shown.filter { _, places in
            let (first, end) = (places[0], places[places.count - 1] + 1)
            let span = spans[end] - spans[first]
            // One sample may represent a long time, but it is still one sample.
            return end - first == places.count && (isPool ? span * 2 > total : span * 4 >= total * 3)
                && (samples[end] - samples[first]) * 2 >= number
        }
        return Set(names.keys)
    }

    /// The value with the most time; among equals, the first.
    private static func heaviest<Value: Hashable>(_ all: [(Value, Duration)]) -> Value? {
        var spans: [Value: Duration] = [:]
        for (value, span) in all { spans[value, default: .zero] += span }
        let most = spans.values.max()
        return all.first { spans[$0.0] == most }?.0
    }

    // MARK: What loops

    /// The outermost frame that has run on between most samples and their thread's next ones, counted from the thread's first frame.
    /// Nil if most pairs of samples show no change.
    private static func loopingLevel(_ samples: [Sample]) -> Int? {
        let whole = samples.filter { $0.stack.complete && $0.stack.leftOut == nil }
        var levels = Dictionary(grouping: whole) { $0.stack.thread.id }.values.flatMap { samples in
            zip(samples, samples.dropFirst()).map { $0.firstDifference(from: $1) ?? .max }
        }
        for sample in whole { levels += Array(repeating: .max, count: min(64, max(1, sample.stack.count) - 1)) }
        levels.sort()
        guard levels.count >= 2, levels[levels.count / 2] != .max else { return nil }
        return levels[levels.count / 2]
    }
}

extension CulpritSearch.Sample {
    /// Counted from the thread's first frame. Nil if both are equal.
    fileprivate func firstDifference(from other: Self) -> Int? {
        let (frames, others) = (places, other.places)
        for (level, (one, another)) in zip(frames, others).enumerated() {
            if one.address != another.address { return level }
            if let state = one.state, let next = another.state, state != next { return level }
        }
        return frames.count == others.count ? nil : min(frames.count, others.count)
    }

    /// The thread's first frame first.
    private var places: [(address: Address, state: UInt64?)] {
        let addresses = stack.frames.lazy.filter { $0.kind == nil }.map(\.address)
        let known = states.isEmpty ? Array(repeating: nil, count: addresses.count) : states
        return zip(addresses, known).map { ($0, $1) }.reversed()
    }
}

/// Identifies functions by what is equal in all samples, however they were compiled. A function without a name is identified by
/// where it begins.
private struct FunctionNames {
    private var known: [String: String] = [:]

    mutating func name(of frame: StallReport.Frame) -> String {
        guard let symbol = frame.symbol else { return "\(frame.module ?? -1)+\(frame.functionStart)" }
        if let name = known[symbol] { return name }
        // In one stall the lines of a script do not change. They distinguish functions of one name.
        let script = GeneratedName(symbol).map { "\($0.identity):\($0.line ?? 0)" }
        let name = script ?? SourceFunction(symbol: symbol).name
        known[symbol] = name
        return name
    }
}
