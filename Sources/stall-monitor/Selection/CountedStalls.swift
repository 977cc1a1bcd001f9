import StallReading
import StallReports

/// Whether counted stalls, which have no report, match a selection.
enum Membership {
    case wanted, unwanted
    /// The deciding property was not recorded.
    case unknown
}

/// Functions and verdicts of faults, known from their reports, for stalls of the same fault that were only counted.
struct FaultTraits {
    private var functions: [Fingerprint: Set<String>] = [:]
    private var verdicts: [Fingerprint: Set<Verdict>] = [:]

    static let unknown = FaultTraits([])

    /// Those that matter to a selection. Collecting them takes a while if there are very many stalls.
    init(_ stalls: [StallOutline], for selection: StallSelection) {
        self = Self.matter(to: selection) ? FaultTraits(stalls) : .unknown
    }

    static func matter(to selection: StallSelection) -> Bool {
        !selection.functions.isEmpty || !selection.verdicts.isEmpty
    }

    init(_ stalls: [StallOutline]) {
        for stall in stalls.oncePerTraits {
            if let name = stall.culpritName { functions[stall.fingerprint, default: []].insert(name) }
            verdicts[stall.fingerprint, default: []].insert(stall.verdict.canonical)
        }
    }

    /// Whether the function and the verdict match. Nil if the fault's reports disagree, or there are none.
    fileprivate func answers(about fault: Fingerprint, to selection: StallSelection) -> [Bool?] {
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
    /// Whether counted stalls match. If unknown, they are kept, so that none is missed.
    func isIncluded(in selection: StallSelection, names: FaultNames? = nil, traits: FaultTraits = .unknown) -> Bool {
        membership(in: selection, names: names, traits: traits) != .unwanted
    }

    /// Decides by time, fault, loop, kind and length, and by the fault's reports.
    func membership(
        in selection: StallSelection,
        names: FaultNames? = nil,
        traits: FaultTraits = .unknown
    ) -> Membership {
        guard isInTime(of: selection), selection.includes(fingerprint, names),
            // Counted stalls have ended, or count as ended.
            selection.states.isEmpty || selection.states.contains(.recovered)
        else { return .unwanted }
        let answers = answers(to: selection) + traits.answers(about: fingerprint, to: selection)
        if answers.contains(false) { return .unwanted }
        return answers.contains(nil) ? .unknown : .wanted
    }

    private func isInTime(of selection: StallSelection) -> Bool {
        if let since = selection.since, repeats.lastAt < since { return false }
        if let beginning = selection.beginning, repeats.firstAt < beginning { return false }
        if let until = selection.until, repeats.firstAt > until { return false }
        return true
    }

    /// Whether the loop, the kind and the length match. Nil if that was not recorded.
    private func answers(to selection: StallSelection) -> [Bool?] {
        [
            selection.labels.isEmpty ? true : label.map { name in selection.labels.contains { $0.matches(name) } },
            selection.types.isEmpty ? true : type.map(selection.types.contains),
            selection.kinds.isEmpty ? true : kind.map(selection.kinds.contains),
            isLongEnough(for: selection),
        ]
    }

    /// Only the longest stall's length is recorded.
    private func isLongEnough(for selection: StallSelection) -> Bool? {
        let least = max(selection.minDurationNs ?? 0, selection.severity?.leastNs ?? 0)
        guard repeats.longestNs >= least else { return false }
        return least == 0 || repeats.count == 1 ? true : nil
    }
}
