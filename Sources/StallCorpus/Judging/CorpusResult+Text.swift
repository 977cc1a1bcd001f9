import FoundationEssentials

extension CorpusResult {
    /// The confusion matrices, the figures, and a paragraph for each scenario that failed.
    package var text: String {
        let parts = [
            ["VERDICTS (made: down, reported: across)"] + ConfusionMatrix.verdicts(outcomes).lines,
            ["KINDS"] + ConfusionMatrix.kinds(outcomes).lines,
            ["FIGURES"] + figureLines,
            failed.isEmpty ? [] : ["NOT AS EXPECTED"] + failed.flatMap(\.lines),
            skippedLines.isEmpty ? [] : ["SKIPPED"] + skippedLines,
            ["GOALS"] + (figures.missedGoals.isEmpty ? ["all met"] : figures.missedGoals.map { "missed: " + $0 }),
        ]
        return parts.filter { !$0.isEmpty }.map { $0.joined(separator: "\n") + "\n" }.joined(separator: "\n")
    }

    /// Everything, for programs.
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
    fileprivate var oneDecimal: String {
        let tenths = Int((self * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}

extension Outcome {
    /// One line for people as the scenario is over.
    package var line: String {
        if let skipped { return "skipped  \(name): \(skipped)" }
        return passed ? "ok       \(name)" : "NOT OK   \(lines.joined(separator: "\n         "))"
    }

    /// What was expected, and what was found instead.
    var lines: [String] {
        guard !passed else { return [] }
        var lines = [failure.map { "\(name): \($0)" } ?? name]
        for stall in stalls where !stall.passed { lines += stall.lines }
        for report in toldAgain { lines.append("  told again: \(report.text)") }
        for alarm in falseAlarms { lines.append("  expected nothing, found \(alarm.text)") }
        return lines
    }
}

extension StallFinding {
    fileprivate var lines: [String] {
        let own =
            "\(expected.lengthMs.oneDecimal) ms, on a CPU \(expected.cpuMs.oneDecimal), kept from one \(expected.runDelayMs.oneDecimal)"
        let wanted = [
            expected.kinds.joined(separator: "/"), expected.verdicts.joined(separator: "/"), expected.culprit,
        ]
        return [
            "  expected \(wanted.joined(separator: ", "))\(expected.owner.map { ", held by \($0)" } ?? ""); it took \(own)",
            "  found    \(found?.text ?? "nothing")",
        ]
    }
}

extension FoundStall {
    fileprivate var text: String {
        "\(kind), \(verdict), \(culprit ?? "no culprit")\(owner.map { ", held by \($0)" } ?? "");"
            + " \(label), \(lengthMs.oneDecimal) ms: \(summary)"
    }
}
