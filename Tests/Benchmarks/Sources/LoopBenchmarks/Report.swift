import Foundation

/// The results of a run, for people and for programs.
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
        for result in columns {
            head += " | " + left("\(result.cores), ns", 10) + ["p99", "best", "cpu"].map { left($0, 10) }.joined()
            head += left("× ours", 8)
        }
        let rows = workload.subjects.indices.map { index in
            columns.reduce(pad(workload.subjects[index].name, 30)) { $0 + " | " + cells(of: $1, index) }
        }
        let title =
            "\(workload.name): \(workload.title). Per \(workload.operation), \(columns.first?.times[0].wall.count ?? 0) rounds."
        return ([title, head] + rows + rates(of: workload, columns)).joined(separator: "\n") + "\n"
    }

    /// The medians as operations and bytes per second.
    private func rates(of workload: Workload, _ columns: [WorkloadResult]) -> [String] {
        guard let bytes = workload.bytes else { return [] }
        return workload.subjects.indices.map { index in
            columns.reduce(pad("  " + workload.subjects[index].name, 30)) { row, result in
                let perSecond = 1e9 / result.times[index].wall.median
                let megabytes = perSecond * Double(bytes) / 1e6
                return row + " | " + left("\(Int(perSecond).grouped) a second, \(number(megabytes)) MB/s", 48)
            }
        }
    }

    private func cells(of result: WorkloadResult, _ index: Int) -> String {
        let (wall, cpu) = (result.times[index].wall, result.times[index].cpu)
        let figures = [wall.median, wall.p99, wall.best, cpu.median].map { left(number($0), 10) }.joined()
        return figures + left(result.ratioToOurs(index).map { String(format: "%.2f", $0) } ?? "", 8)
    }

    private var goalTable: String {
        guard !verdicts.isEmpty else { return "" }
        let rows = verdicts.map { verdict in
            let goal = verdict.goal
            return pad(goal.title, 52) + pad(verdict.cores.rawValue, 8)
                + left("\(goal.atMost ? "≤" : "≥") \(plain(goal.bound)) \(goal.unit)", 10)
                + left("\(number(verdict.value)) \(goal.unit)", 12) + left(number(verdict.best), 10)
                + left(number(verdict.cpu), 10)
                + pad(verdict.isDecidedByCPU ? "  cpu" : "  median", 10) + (verdict.isMet ? "met" : "NOT MET")
        }
        let head =
            pad("Goals", 60) + left("goal", 10) + left("median", 12) + left("best", 10) + left("cpu", 10) + "  decides"
        return ([head] + rows).joined(separator: "\n")
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
