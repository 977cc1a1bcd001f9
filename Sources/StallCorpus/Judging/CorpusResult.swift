import FoundationEssentials

/// The outcomes of all scenarios.
package struct CorpusResult: Codable, Sendable {
    package var outcomes: [Outcome]

    package init(outcomes: [Outcome]) { self.outcomes = outcomes }

    /// The figures of all scenarios together.
    package var figures: CorpusFigures { CorpusFigures(outcomes) }

    /// The figures of each part that was tried.
    var figuresOfParts: [(Scenario.Part, CorpusFigures)] {
        Scenario.Part.allCases.compactMap { part in
            let own = outcomes.filter { $0.part == part }
            return own.isEmpty ? nil : (part, CorpusFigures(own))
        }
    }

    package var failed: [Outcome] { outcomes.filter { !$0.passed } }
}

/// The number of right results, and the number of all.
package struct Share: Codable, Hashable, Sendable {
    package var right = 0
    package var of = 0

    init(_ answers: [Bool]) { (right, of) = (answers.count { $0 }, answers.count) }

    /// 0 to 100. It is 100 if nothing was counted.
    package var percent: Double { of == 0 ? 100 : 100 * Double(right) / Double(of) }
}

/// The figures that rate the monitor.
package struct CorpusFigures: Codable, Sendable {
    /// The share of made stalls that were reported.
    package var found: Share
    /// The share of look-alikes without a report.
    package var silent: Share
    /// Reports without a stall, in all scenarios.
    package var falseAlarms: Int
    /// Repeated reports of a stall that was already reported.
    package var toldAgain: Int
    /// This and the next two: the share of found stalls with the right value.
    package var kind: Share
    package var verdict: Share
    package var culprit: Share
    /// Counts only stalls whose awaited lock or resource is held by a thread.
    package var owner: Share
    package var startError: ErrorFigures
    package var endError: ErrorFigures
    /// Scenarios that were played more than once.
    package var again: Int
    package var skipped: Int
    /// Scenarios that were not played to the end.
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

    /// The missed goals, one line for each. Empty if all are met.
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

/// Deviations, in milliseconds.
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

extension CorpusResult {
    /// The confusion matrices, the figures, and a paragraph for each scenario that failed.
    package var text: String {
        let parts: [[String]] = [
            ["VERDICTS (made: down, reported: across)"] + ConfusionMatrix.verdicts(outcomes).lines,
            ["KINDS"] + ConfusionMatrix.kinds(outcomes).lines,
            ["FIGURES"] + figureLines,
            failed.isEmpty ? [] : ["NOT AS EXPECTED"] + failed.flatMap(\.lines),
            skippedLines.isEmpty ? [] : ["SKIPPED"] + skippedLines,
            ["GOALS"] + (figures.missedGoals.isEmpty ? ["all met"] : figures.missedGoals.map { "missed: " + $0 }),
        ]
        return parts.filter { !$0.isEmpty }.map { $0.joined(separator: "\n") + "\n" }.joined(separator: "\n")
    }

    /// All results, as JSON for programs.
    package func json() throws -> String {
        struct Document: Encodable {
            var goalsMet: Bool
            var missedGoals: [String]
            var figures: CorpusFigures
            var parts: [String: CorpusFigures]
            var outcomes: [Outcome]
        }
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        let document = Document(
            goalsMet: figures.missedGoals.isEmpty,
            missedGoals: figures.missedGoals,
            figures: figures,
            parts: Dictionary(uniqueKeysWithValues: figuresOfParts.map { ($0.0.rawValue, $0.1) }),
            outcomes: outcomes
        )
        return String(decoding: try encoder.encode(document), as: UTF8.self)
    }

    private var skippedLines: [String] {
        outcomes.compactMap { outcome in outcome.skipped.map { "\(outcome.name): \($0)" } }
    }

    private var figureLines: [String] {
        let head = [
            "", "found", "silent", "false alarms", "told again", "kind", "verdict", "culprit", "owner",
            "start p50/max ms",
            "end p50/max ms",
            "again", "skipped", "broken",
        ]
        let rows = figuresOfParts.map { $0.1.cells(named: $0.0.rawValue) } + [figures.cells(named: "all")]
        return TextColumns.lines([head] + rows)
    }
}

extension CorpusFigures {
    fileprivate func cells(named name: String) -> [String] {
        let shares =
            [found, silent].map(\.short) + ["\(falseAlarms)", "\(toldAgain)"]
            + [kind, verdict, culprit, owner].map(\.short)
        return [name] + shares + [startError.text, endError.text, "\(again)", "\(skipped)", "\(broken)"]
    }
}

extension Share {
    fileprivate var short: String { of == 0 ? "-" : "\(right)/\(of)" }
}

extension ErrorFigures {
    fileprivate var text: String { "\(median.oneDecimal) / \(maximum.oneDecimal)" }
}

extension Double {
    var oneDecimal: String {
        let tenths = Int((self * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}

/// Counts how often each expected value was reported as which value.
struct ConfusionMatrix {
    let columns: [String]
    let rows: [(name: String, counts: [Int])]

    private static let missed = "missed"
    private static let silence = "silence"

    /// The matrix of verdicts; `kinds` is the one of kinds.
    static func verdicts(_ outcomes: [Outcome]) -> ConfusionMatrix {
        ConfusionMatrix(outcomes, expected: { $0.expected.verdicts.joined(separator: "/") }, found: \.verdict)
    }

    static func kinds(_ outcomes: [Outcome]) -> ConfusionMatrix {
        ConfusionMatrix(outcomes, expected: { $0.expected.kinds.joined(separator: "/") }, found: \.kind)
    }

    private init(
        _ outcomes: [Outcome],
        expected: (JudgedStall) -> String,
        found: (FoundStall) -> String
    ) {
        let played = outcomes.filter { $0.skipped == nil && $0.failure == nil }
        var pairs = played.flatMap(\.stalls).map { (expected($0), $0.found.map(found) ?? Self.missed) }
        pairs += played.flatMap(\.falseAlarms).map { (Self.silence, found($0)) }
        pairs += played.filter { !$0.isStall && $0.falseAlarms.isEmpty }.map { _ in (Self.silence, Self.silence) }
        let names =
            Set(pairs.map(\.1)).subtracting([Self.missed, Self.silence]).sorted() + [Self.missed, Self.silence]
        columns = names
        rows = Set(pairs.map(\.0)).sorted { ($0 == Self.silence ? 1 : 0, $0) < ($1 == Self.silence ? 1 : 0, $1) }
            .map { row in (row, names.map { name in pairs.count { $0 == (row, name) } }) }
    }

    var lines: [String] {
        let table = [[""] + columns] + rows.map { [$0.name] + $0.counts.map { $0 == 0 ? "." : "\($0)" } }
        return TextColumns.lines(table)
    }
}

/// A plain text table: the first column is left-aligned, the others are right-aligned.
private enum TextColumns {
    static func lines(_ rows: [[String]]) -> [String] {
        let count = rows.map(\.count).max() ?? 0
        let widths = (0..<count).map { column in
            rows.compactMap { $0.indices.contains(column) ? $0[column].count : nil }.max() ?? 0
        }
        return rows.map { row in
            zip(row, widths).enumerated().map { index, cell in
                let space = String(repeating: " ", count: cell.1 - cell.0.count)
                return index == 0 ? cell.0 + space : space + cell.0
            }.joined(separator: "  ")
        }
    }
}
