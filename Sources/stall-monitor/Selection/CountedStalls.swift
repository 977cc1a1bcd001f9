import StallReports

/// Whether stalls that were only counted are among those asked for.
enum Membership {
    case wanted, unwanted
    /// What would tell was not noted.
    case unknown

    init(_ isWanted: Bool?) { self = isWanted.map { $0 ? .wanted : .unwanted } ?? .unknown }
}

/// What the reports tell of faults: stalls of a fault that were only counted have its function, and a verdict that it has in its reports.
struct FaultTraits {
    private var functions: [Fingerprint: Set<String>] = [:]
    private var verdicts: [Fingerprint: Set<Verdict>] = [:]

    static let unknown = FaultTraits([])

    init(_ stalls: [StallOutline]) {
        for stall in stalls {
            stall.culpritName.map { _ = functions[stall.fingerprint, default: []].insert($0) }
            verdicts[stall.fingerprint, default: []].insert(stall.verdict.canonical)
        }
    }

    /// Nil where the reports of the fault do not agree, or there are none.
    fileprivate func isWanted(_ fault: Fingerprint, by selection: StallSelection) -> [Bool?] {
        [
            selection.functions.isEmpty
                ? true
                : Self.agreed(functions[fault]?.map { name in selection.functions.contains { $0.matches(name) } }),
            selection.verdicts.isEmpty ? true : Self.agreed(verdicts[fault]?.map { selection.verdicts.contains($0) }),
        ]
    }

    private static func agreed(_ answers: [Bool]?) -> Bool? {
        let answers = Set(answers ?? [])
        return answers.count == 1 ? answers.first : nil
    }
}

extension RunRecord.Repeated {
    /// Whether stalls that were only counted are wanted. Those of which nothing tells are kept: nobody shall miss them.
    func isIncluded(in selection: StallSelection, names: FaultNames? = nil, traits: FaultTraits = .unknown) -> Bool {
        membership(in: selection, names: names, traits: traits) != .unwanted
    }

    /// By their time, fault, loop, kind and length, and by what the reports tell of the fault.
    func membership(
        in selection: StallSelection,
        names: FaultNames? = nil,
        traits: FaultTraits = .unknown
    ) -> Membership {
        guard isInTime(of: selection), selection.includes(fingerprint, names),
            // They are over, or are told as if they were.
            selection.states.isEmpty || selection.states.contains(.recovered)
        else { return .unwanted }
        let answers =
            [isOfLoop(of: selection), isLongEnough(for: selection)] + traits.isWanted(fingerprint, by: selection)
        if answers.contains(false) { return .unwanted }
        return answers.contains(nil) ? .unknown : .wanted
    }

    private func isInTime(of selection: StallSelection) -> Bool {
        if let since = selection.since, repeats.lastAt < since { return false }
        if let until = selection.until, repeats.firstAt > until { return false }
        return true
    }

    private func isOfLoop(of selection: StallSelection) -> Bool? {
        let answers: [Bool?] = [
            selection.labels.isEmpty ? true : label.map { name in selection.labels.contains { $0.matches(name) } },
            selection.types.isEmpty ? true : type.map(selection.types.contains),
            selection.kinds.isEmpty ? true : kind.map(selection.kinds.contains),
        ]
        return answers.contains(false) ? false : answers.contains(nil) ? nil : true
    }

    /// Only the longest one's length is noted.
    private func isLongEnough(for selection: StallSelection) -> Bool? {
        let least = max(selection.minDurationNs ?? 0, selection.severity?.leastNs ?? 0)
        guard repeats.longestNs >= least else { return false }
        return least == 0 || repeats.count == 1 ? true : nil
    }
}

extension Severity {
    /// From which length on a stall has it, in nanoseconds.
    fileprivate var leastNs: Int64 {
        switch self {
        case .critical: 5_000_000_000
        case .error: 1_000_000_000
        default: 0
        }
    }
}
