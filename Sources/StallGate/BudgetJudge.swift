import StallReading
import StallReports

/// Judges a run by the limits of a budget's rules. A pure function of the directory's contents.
struct BudgetJudge {
    private(set) var findings: [Finding] = []
    private(set) var doubts: [Doubt] = []
    /// Stalls that no limit is for, although the budget has limits.
    private(set) var unlimited: [Occurrence] = []
    private let runs: [RunRecord]
    private let names: FaultNames

    /// - Parameter occurrences: Stalls that no allowance covers.
    init(_ budget: Budget, _ occurrences: some Collection<Occurrence>, _ runs: [RunRecord], _ names: FaultNames) {
        (self.runs, self.names) = (runs, names)
        let (groups, rest) = Self.grouped(occurrences, by: budget.rules, names)
        let areLimited = budget.limits.limitsStalls
        if !areLimited, !budget.rules.isEmpty || budget.limits.limitsTurns { unlimited = rest }
        for (rule, group) in zip(budget.rules, groups) where rule.severity != .off {
            judge(rule, group)
            if !areLimited, !rule.limits.limitsStalls { unlimited += group }
        }
        judge(BudgetRule(name: "", limits: budget.limits), occurrences)
        findings += budget.expired.map(Self.expired)
    }

    /// The occurrences of each rule that is the first to match them, and those that match none.
    private static func grouped(
        _ occurrences: some Collection<Occurrence>,
        by rules: [BudgetRule],
        _ names: FaultNames
    ) -> (groups: [[Occurrence]], rest: [Occurrence]) {
        var (groups, rest) = ([[Occurrence]](repeating: [], count: rules.count), [Occurrence]())
        if rules.isEmpty { return (groups, Array(occurrences)) }
        for occurrence in occurrences {
            if let index = rules.firstIndex(where: { $0.scope.fits(occurrence, names) }) {
                groups[index].append(occurrence)
            } else {
                rest.append(occurrence)
            }
        }
        return (groups, rest)
    }

    private mutating func judge(_ rule: BudgetRule, _ group: some Collection<Occurrence>) {
        let things = runs.flatMap { run in
            run.watched.filter { rule.scope.fits(service: run.service(of: $0), label: $0.label, type: $0.type) }
        }
        let watched = things.map { max(0, $0.watchedNs) }.saturatingSum()
        // The whole run has its own doubt if it watched nothing.
        if watched == 0, !rule.name.isEmpty, rule.severity == .error {
            doubts.append(.unwatchedBudget(rule.name))
            return
        }
        judgeCount(rule, group, watched)
        judgeShare(rule, group, watched)
        judgeLengths(rule, group)
        if rule.limits.limitsTurns { judgeTurns(rule, things) }
    }

    private mutating func judgeCount(_ rule: BudgetRule, _ group: some Collection<Occurrence>, _ watched: Int64) {
        let count = group.lazy.map(\.count).saturatingSum()
        if let most = rule.limits.maxStalls, count > most {
            add(.stallCount, rule, "\(quantity(count, "stall")), \(most) permitted", group)
        }
        if let most = rule.limits.maxPerHour, Self.rate(count, watched) > most {
            let rate = "\(Figure.short(Self.rate(count, watched))) stalls per hour watched"
            add(
                .stallRate,
                rule,
                "\(rate) (\(count) in \(Figure.length(watched))), \(Figure.short(most)) permitted",
                group
            )
        }
    }

    private mutating func judgeShare(_ rule: BudgetRule, _ group: some Collection<Occurrence>, _ watched: Int64) {
        guard let most = rule.limits.maxBlockedPercent else { return }
        let blocked = group.lazy.map(\.totalNs).saturatingSum()
        let share = Self.percent(blocked, of: watched)
        guard share > most else { return }
        let message =
            "stalled for \(Figure.short(share)) % of the watched time (\(Figure.length(blocked)) of \(Figure.length(watched)))"
        add(.blockedShare, rule, "\(message), \(Figure.short(most)) % permitted", group)
    }

    private mutating func judgeLengths(_ rule: BudgetRule, _ group: some Collection<Occurrence>) {
        guard let most = rule.limits.maxDurationNs else { return }
        let tooLong = group.filter { $0.longestNs > most }
        if let longest = tooLong.map(\.longestNs).max() {
            let message =
                "\(quantity(tooLong.count, "stall")) too long, the longest \(Figure.length(longest, beside: most))"
            add(.stallLength, rule, "\(message), \(DurationText(nanoseconds: most)) permitted", tooLong)
        }
        guard rule.severity == .error else { return }
        doubts += group.lazy.filter { $0.isOngoing && $0.longestNs <= most }.compactMap(\.stall).map {
            .underWay($0.id)
        }
    }

    private mutating func judgeTurns(_ rule: BudgetRule, _ things: [RunRecord.Watched]) {
        let timed = things.compactMap { thing in thing.turnDurations.map { (thing.label, $0) } }
        if timed.isEmpty, rule.severity == .error {
            doubts.append(.noTurnDurations(rule.name.isEmpty ? nil : rule.name))
        }
        judgeTurns(.turnP99, rule, "99 of 100 turns took up to", timed.map { ($0, $1.p99Ns) }, rule.limits.maxTurnP99Ns)
        judgeTurns(.turnLength, rule, "the longest turn took", timed.map { ($0, $1.maxNs) }, rule.limits.maxTurnNs)
    }

    private mutating func judgeTurns(
        _ kind: Finding.Rule,
        _ rule: BudgetRule,
        _ words: String,
        _ turns: [(label: String, ns: Int64)],
        _ limit: Int64?
    ) {
        guard let limit, let worst = turns.max(by: { $0.ns < $1.ns }), worst.ns > limit else { return }
        let label = VisibleText.of(worst.label, limit: 80)
        add(
            kind,
            rule,
            "\(words) \(Figure.length(worst.ns)) on \(label), \(DurationText(nanoseconds: limit)) permitted",
            [Occurrence]()
        )
    }

    private mutating func add(
        _ kind: Finding.Rule,
        _ rule: BudgetRule,
        _ message: String,
        _ group: some Collection<Occurrence>
    ) {
        findings.append(
            Finding(
                kind,
                rule.severity == .warning ? .warning : .error,
                budget: rule.name.isEmpty ? nil : rule.name,
                message: message,
                faults: worstFirst(group, kind)
            )
        )
    }

    /// The faults by what each contributed to exceeding the limit: stalls, blocked time, or a stall that was too long.
    private func worstFirst(_ group: some Collection<Occurrence>, _ kind: Finding.Rule) -> [Fingerprint] {
        var weights: [Fingerprint: Int64] = [:]
        for occurrence in group {
            let known = weights[occurrence.fingerprint] ?? 0
            weights[occurrence.fingerprint] =
                switch kind {
                case .stallCount, .stallRate: known.addingSaturated(Int64(clamping: occurrence.count))
                case .blockedShare: known.addingSaturated(occurrence.totalNs)
                default: max(known, occurrence.longestNs)
                }
        }
        let isSum = [.stallCount, .stallRate, .blockedShare].contains(kind)
        return names.greatestFirst(weights) { isSum ? $0.addingSaturated($1) : max($0, $1) }
    }

    private static func expired(_ allowance: Allowance) -> Finding {
        let message =
            "the allowance of \(allowance.fault) ended on \(allowance.expires): \(VisibleText.of(allowance.owner, limit: 80)) "
            + "mends the fault, or sets another day (reason: \(VisibleText.of(allowance.reason, limit: 160)))"
        return Finding(.expiredAllowance, .error, message: message)
    }

    private static func rate(_ count: Int, _ watchedNs: Int64) -> Double {
        count == 0 ? 0 : Double(count) / (Double(watchedNs) / 3.6e12)
    }

    private static func percent(_ part: Int64, of whole: Int64) -> Double {
        part == 0 ? 0 : Double(part) / Double(whole) * 100
    }
}

/// Figures for display.
package enum Figure {
    /// About three digits.
    package static func short(_ value: Double) -> String {
        guard value.isFinite else { return value > 0 ? "infinitely many" : "0" }
        let places = abs(value) >= 100 ? 0 : abs(value) >= 10 ? 1 : abs(value) >= 0.1 || value == 0 ? 2 : 5
        var step = 1.0
        for _ in 0..<places { step *= 10 }
        let rounded = (value * step).rounded() / step
        return rounded == rounded.rounded() && abs(rounded) < 1e15 ? "\(Int64(saturating: rounded))" : "\(rounded)"
    }

    package static func length(_ nanoseconds: Int64) -> String { DurationText(nanoseconds: nanoseconds).short }

    /// Exact if it would look like the limit that it exceeds, perhaps by a microsecond.
    static func length(_ nanoseconds: Int64, beside limit: Int64?) -> String {
        let text = length(nanoseconds)
        return limit.map { length($0) } == text ? DurationText(nanoseconds: nanoseconds).description : text
    }

    /// How likely chance is: `p = 0.02`.
    package static func chance(_ probability: Double) -> String {
        if probability >= 1 { return "too few to tell" }
        return probability < 0.0001 ? "p < 0.0001" : "p = \(short(probability))"
    }
}
