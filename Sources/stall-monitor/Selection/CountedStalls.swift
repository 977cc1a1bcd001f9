import StallGate
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
    /// By the first name of each fault: stalls may have been counted under another fingerprint than the one that its reports have.
    private var functions: [Fingerprint: Set<String>] = [:]
    private var verdicts: [Fingerprint: Set<Verdict>] = [:]
    private let names: FaultNames

    static let unknown = FaultTraits([])

    /// Those that matter to a selection. Collecting them takes a while if there are very many stalls.
    init(_ stalls: [StallOutline], for selection: StallSelection) {
        self = Self.matter(to: selection) ? FaultTraits(stalls) : .unknown
    }

    static func matter(to selection: StallSelection) -> Bool {
        !selection.functions.isEmpty || !selection.verdicts.isEmpty
    }

    init(_ stalls: [StallOutline]) {
        let stalls = stalls.oncePerTraits
        names = FaultNames(stalls)
        for stall in stalls {
            let fault = names.first(of: stall.fingerprint)
            if let name = stall.culpritName { functions[fault, default: []].insert(name) }
            verdicts[fault, default: []].insert(stall.verdict.canonical)
        }
    }

    /// Whether the function and the verdict match. Nil if the fault's reports disagree, or there are none.
    fileprivate func answers(about fault: Fingerprint, to selection: StallSelection) -> [Bool?] {
        let fault = names.first(of: fault)
        return [
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
        if let until = selection.until, repeats.firstAt > until { return false }
        // Of several, each began at another time.
        if let beginning = selection.beginning, repeats.count == 1, repeats.firstAt < beginning { return false }
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

/// How stalls that were only counted are taken of which only some came in the chosen time.
enum CountedPart {
    /// As many as if they had come evenly, like the watched time of a run.
    case even
    /// All of them: no more can have come in that time.
    case whole
}

extension StallSelection {
    /// Those of counted stalls that came in the chosen time, as far as is known.
    func part(of fault: RunRecord.Repeated) -> RunRecord.Repeated { fault.part(since: since, until: until) }

    /// A stall without those before it that were only counted, and that came before the chosen time.
    func part(of stall: StallOutline) -> StallOutline {
        guard let since, let repeats = stall.repeats, repeats.firstAt < since else { return stall }
        let counted = RunRecord.Repeated(fingerprint: stall.fingerprint, repeats: repeats)
        let rest = repeats.lastAt < since ? nil : part(of: counted).repeats
        // Older reports may have more of them than they have times of.
        let unknown = max(0, stall.suppressed.subtractingSaturated(max(0, repeats.count)))
        return StallOutline(
            id: stall.id,
            startedAt: stall.startedAt,
            endedAt: stall.endedAt,
            durationNs: stall.durationNs,
            runDelayShare: stall.runDelayShare,
            traits: stall.traits,
            origin: stall.origin,
            suppressed: unknown.addingSaturated(rest?.count ?? 0),
            repeats: rest
        )
    }

    /// The stalls that a report counted, if it began after the chosen time and some of them did not. Its own stall is not chosen.
    func countedEarlier(by stall: StallOutline) -> RunRecord.Repeated? {
        guard let until, stall.startedAt > until, let fault = stall.countedBefore, fault.repeats.firstAt <= until else {
            return nil
        }
        return fault
    }
}

extension StallOutline {
    /// The stalls that its report counted, as the run record had them before. Nil if there are none.
    var countedBefore: RunRecord.Repeated? {
        guard let repeats else { return nil }
        var fault = RunRecord.Repeated(
            fingerprint: fingerprint,
            repeats: repeats,
            label: label,
            type: type,
            kind: kind
        )
        fault.service = service
        return fault
    }
}

extension ReportReader.Overview {
    /// The runs, each also with those stalls of the chosen time that a report after it counted: a report has those since the one before it.
    func runsWithCounted(by selection: StallSelection) -> [RunRecord] {
        guard selection.until != nil else { return runs }
        var counted: [ULID: [RunRecord.Repeated]] = [:]
        for stall in stalls {
            guard let run = stall.run, let fault = selection.countedEarlier(by: stall) else { continue }
            counted[run, default: []].append(fault)
        }
        guard !counted.isEmpty else { return runs }
        return runs.map { run in
            var run = run
            if let more = counted[run.id] { run.repeated = (run.repeated ?? []) + more }
            return run
        }
    }

    /// The matching part with all counted stalls that can have come in the chosen time. Nil if all are counted in any case.
    func chosenAtMost(by selection: StallSelection) -> Self? {
        guard selection.since != nil || selection.until != nil else { return nil }
        let isCounted = runs.contains { $0.repeated?.isEmpty == false } || stalls.contains { $0.suppressed > 0 }
        return isCounted ? chosen(by: selection, counting: .whole) : nil
    }

    /// The number of stalls that were only counted.
    var countedOnly: Int {
        let recorded = runs.flatMap { $0.repeated ?? [] }.map { max(0, $0.repeats.count) }.saturatingSum()
        return stalls.lazy.map { max(0, $0.suppressed) }.saturatingSum(from: recorded)
    }

    /// Doubts whether the stalls in `most` beyond those in this overview count.
    func doubts(beside most: Self) -> [Doubt] {
        let (part, all) = (countedByRun, most.countedByRun)
        return most.runs.compactMap { run in
            let count = (all[run.id] ?? 0).subtractingSaturated(part[run.id] ?? 0)
            return count > 0 ? .unplaced(run: run.id, count: count) : nil
        }
    }

    private var countedByRun: [ULID: Int64] {
        var counts: [ULID: Int64] = [:]
        for run in runs {
            counts[run.id] = (run.repeated ?? []).map { Int64(clamping: max(0, $0.repeats.count)) }.saturatingSum()
        }
        for stall in stalls where stall.suppressed > 0 {
            guard let run = stall.run else { continue }
            counts[run] = (counts[run] ?? 0).addingSaturated(Int64(clamping: stall.suppressed))
        }
        return counts
    }
}
