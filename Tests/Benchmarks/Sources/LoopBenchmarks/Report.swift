import Foundation

/// What a run found, for people and for programs.
struct Report {
    let results: [WorkloadResult]

    var verdicts: [Goal.Verdict] { Goal.all.flatMap { $0.verdicts(on: results) } }
}

// MARK: - Text

extension Report {
    var text: String {
        var tables: [String] = []
        var seen: Set<String> = []
        for result in results where seen.insert(result.workload.name).inserted {
            tables.append(table(of: result.workload))
        }
        return tables.joined(separator: "\n") + "\n" + goalTable
    }

    private func table(of workload: Workload) -> String {
        let columns = Harness.Cores.allCases.compactMap { cores in
            results.first { $0.workload.name == workload.name && $0.cores == cores }
        }
        var head = pad("", 30)
        for result in columns { head += " | " + left("\(result.cores), ns", 10) + left("p99", 10) + left("× ours", 8) }
        let rows = workload.subjects.indices.map { index in
            columns.reduce(pad(workload.subjects[index].name, 30)) { $0 + " | " + cells(of: $1, index) }
        }
        let title =
            "\(workload.name): \(workload.title). Per \(workload.operation), \(columns.first?.times[0].count ?? 0) rounds."
        return ([title, head] + rows).joined(separator: "\n") + "\n"
    }

    private func cells(of result: WorkloadResult, _ index: Int) -> String {
        let time = result.times[index]
        let ratio = time.median / result.times[0].median
        return left(number(time.median), 10) + left(number(time.p99), 10) + left(String(format: "%.2f", ratio), 8)
    }

    private var goalTable: String {
        guard !verdicts.isEmpty else { return "" }
        let rows = verdicts.map { verdict in
            let goal = verdict.goal
            return pad(goal.title, 50) + pad(verdict.cores.rawValue, 8)
                + left("\(goal.atMost ? "≤" : "≥") \(plain(goal.bound)) \(goal.unit)", 10)
                + left("\(number(verdict.value)) \(goal.unit)", 14) + "  \(verdict.isMet ? "met" : "NOT MET")"
        }
        return (["Goals"] + rows).joined(separator: "\n")
    }

    private func number(_ value: Double) -> String { String(format: value < 100 ? "%.2f" : "%.0f", value) }
    private func plain(_ value: Double) -> String { String(format: "%g", value) }
    private func pad(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(1, width - text.count))
    }
    private func left(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(1, width - text.count)) + text
    }
}

// MARK: - JSON

extension Report {
    private struct Document: Encodable {
        var workloads: [Entry]
        var goals: [Judged]
    }

    private struct Entry: Encodable {
        var workload, cores, subject, operation: String
        var operations, rounds: Int
        var medianNs, p99Ns, ratioToOurs: Double
    }

    private struct Judged: Encodable {
        var goal, cores, relation, unit: String
        var bound, value: Double
        var isMet: Bool
    }

    func json() throws -> String {
        let document = Document(workloads: results.flatMap(entries), goals: verdicts.map(judged))
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        return String(decoding: try encoder.encode(document), as: UTF8.self)
    }

    private func entries(of result: WorkloadResult) -> [Entry] {
        result.workload.subjects.indices.map { index in
            let (subject, time) = (result.workload.subjects[index], result.times[index])
            return Entry(
                workload: result.workload.name,
                cores: result.cores.rawValue,
                subject: subject.name,
                operation: result.workload.operation,
                operations: subject.operations,
                rounds: time.count,
                medianNs: time.median,
                p99Ns: time.p99,
                ratioToOurs: time.median / result.times[0].median
            )
        }
    }

    private func judged(_ verdict: Goal.Verdict) -> Judged {
        Judged(
            goal: verdict.goal.title,
            cores: verdict.cores.rawValue,
            relation: verdict.goal.atMost ? "at most" : "at least",
            unit: verdict.goal.unit,
            bound: verdict.goal.bound,
            value: verdict.value,
            isMet: verdict.isMet
        )
    }
}
