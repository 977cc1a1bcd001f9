import Foundation

extension Report {
    private struct Document: Encodable {
        var workloads: [Entry]
        var goals: [Judged]
    }

    private struct Entry: Encodable {
        var workload, cores, subject, operation: String
        var operations, rounds: Int
        var medianNs, p99Ns, bestNs, cpuNs: Double
        var ratioToOurs: Double?
    }

    private struct Judged: Encodable {
        var goal, cores, relation, unit: String
        var bound, value, best, cpu: Double
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
                rounds: time.wall.count,
                medianNs: time.wall.median,
                p99Ns: time.wall.p99,
                bestNs: time.wall.best,
                cpuNs: time.cpu.median,
                ratioToOurs: result.ratioToOurs(index)
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
            best: verdict.best,
            cpu: verdict.cpu,
            isMet: verdict.isMet
        )
    }
}
