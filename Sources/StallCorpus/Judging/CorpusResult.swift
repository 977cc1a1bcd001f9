/// What became of all scenarios.
package struct CorpusResult: Codable, Sendable {
    package var outcomes: [Outcome]

    package init(outcomes: [Outcome]) { self.outcomes = outcomes }

    /// All scenarios together.
    package var figures: CorpusFigures { CorpusFigures(outcomes) }

    /// For each part that was tried.
    var figuresOfParts: [(Scenario.Part, CorpusFigures)] {
        Scenario.Part.allCases.compactMap { part in
            let own = outcomes.filter { $0.part == part }
            return own.isEmpty ? nil : (part, CorpusFigures(own))
        }
    }

    package var failed: [Outcome] { outcomes.filter { !$0.passed } }
}

/// So many of so many.
package struct Share: Codable, Hashable, Sendable {
    package var right = 0
    package var of = 0

    init(_ answers: [Bool]) { (right, of) = (answers.count { $0 }, answers.count) }

    /// 0 to 100. What nothing was asked of is right.
    package var percent: Double { of == 0 ? 100 : 100 * Double(right) / Double(of) }
}

/// The figures by which a monitor is judged.
package struct CorpusFigures: Codable, Sendable {
    /// Of the stalls that were made, those reported.
    package var found: Share
    /// Of the look-alikes, those that nothing was reported of.
    package var silent: Share
    /// Reports of nothing, in all scenarios.
    package var falseAlarms: Int
    /// Reports of what was reported already.
    package var toldAgain: Int
    /// Of the stalls that were found.
    package var kind: Share
    package var verdict: Share
    package var culprit: Share
    /// Of those where somebody holds what is waited for.
    package var owner: Share
    package var startError: ErrorFigures
    package var endError: ErrorFigures
    /// Scenarios that were played more than once.
    package var again: Int
    package var skipped: Int
    /// Scenarios that were not played to their end.
    package var broken: Int

    init(_ outcomes: [Outcome]) {
        let played = outcomes.filter { $0.skipped == nil && $0.failure == nil }
        let stalls = played.flatMap(\.stalls)
        let reported = stalls.filter { $0.found != nil }
        found = Share(stalls.map { $0.found != nil })
        silent = Share(played.filter { !$0.isStall }.map(\.falseAlarms.isEmpty))
        falseAlarms = played.reduce(0) { $0 + $1.falseAlarms.count }
        toldAgain = played.reduce(0) { $0 + $1.toldAgain.count }
        kind = Share(reported.map(\.isKindRight))
        verdict = Share(reported.map(\.isVerdictRight))
        culprit = Share(reported.map(\.isCulpritRight))
        owner = Share(reported.compactMap(\.isOwnerRight))
        startError = ErrorFigures(reported.compactMap(\.startErrorMs))
        endError = ErrorFigures(reported.compactMap(\.endErrorMs))
        again = outcomes.count { $0.attempts > 1 }
        skipped = outcomes.count { $0.skipped != nil }
        broken = outcomes.count { $0.failure != nil }
    }

    /// What is missed of the goals, a line for each. Empty: all are met.
    package var missedGoals: [String] {
        var missed: [String] = []
        if found.right < found.of { missed.append("stalls found: \(found.text), goal all") }
        if falseAlarms > 0 { missed.append("false alarms: \(falseAlarms), goal none") }
        if toldAgain > 0 { missed.append("stalls told again: \(toldAgain), goal none") }
        if culprit.percent < 98 { missed.append("right culprit: \(culprit.text), goal 98 %") }
        if verdict.percent < 95 { missed.append("right verdict: \(verdict.text), goal 95 %") }
        if owner.right < owner.of { missed.append("right owner: \(owner.text), goal all") }
        if broken > 0 { missed.append("scenarios that broke: \(broken), goal none") }
        return missed
    }
}

/// How far off something is, in milliseconds.
package struct ErrorFigures: Codable, Sendable {
    package var median: Double
    package var maximum: Double

    init(_ errors: [Double]) {
        let sorted = errors.sorted()
        median = sorted.isEmpty ? 0 : sorted[sorted.count / 2]
        maximum = sorted.last ?? 0
    }
}

extension Share {
    var text: String { "\(right) of \(of)" + (of == 0 ? "" : " (\(Int(percent.rounded(.down))) %)") }
}
