import StallReports

/// The workers of a task pool, a row each: how long it stood, why, and at what.
struct PoolTable {
    let report: StallReport
    let pool: StallReport.Pool
    /// Of the terminal. Nil: as wide as it is.
    var width: Int?

    /// More workers than these are not told one by one: a file may claim any number.
    private static let limit = 256

    /// `2 wide, 2 jobs in progress, at least 3 waiting`
    static func summary(of pool: StallReport.Pool) -> StyledText {
        let waiting =
            switch pool.waiting {
            case nil: ""
            case 0: ", none waiting"
            case let count?: ", at least \(count) waiting"
            }
        let culprit = pool.atCulprit.map { ", \($0) \($0 == 1 ? "worker" : "workers") at the culprit" } ?? ""
        return
            "\(pool.width) wide, \(pool.running) \(pool.running == 1 ? "job" : "jobs") in progress\(waiting)\(culprit)"
    }

    var lines: [StyledText] {
        guard !pool.workers.isEmpty else { return [] }
        var table = TextTable([
            .init(title: "WORKER", minimum: 14), .init(title: "STOOD"), .init(title: "TASK"),
            .init(title: "VERDICT", minimum: 8), .init(title: "AT", minimum: 20),
        ])
        for worker in pool.workers.prefix(Self.limit) { table.append(cells(worker)) }
        let left = pool.workers.count - Self.limit
        let more: [StyledText] = left > 0 ? ["\("… \(left) more workers", .dim)"] : []
        return (table.lines(width: width.map { $0 - 2 }) + more).map { "  " + $0 } + [""]
    }

    private func cells(_ worker: StallReport.Worker) -> [StyledText] {
        [
            StyledText(worker.thread.numberAndName, limit: 40),
            "\(DurationText(nanoseconds: worker.standingNs).short)",
            StyledText(worker.task.map { "\($0)" } ?? ""),
            worker.verdict.styled,
            place(of: worker),
        ]
    }

    private func place(of worker: StallReport.Worker) -> StyledText {
        guard let index = worker.stack, report.stacks.indices.contains(index) else {
            return "\("no stack: \(worker.error ?? "it was not kept")", .dim)"
        }
        let stack = report.stacks[index]
        let frames = stack.frames + (stack.async?.frames ?? [])
        guard let frame = frames.first(where: \.own) ?? frames.first(where: { $0.function != nil }) ?? frames.first
        else {
            return ""
        }
        let line = frame.file.flatMap { file in
            frame.line.map { "  \(file.split(separator: "/").last.map(String.init) ?? file):\($0)" }
        }
        let lock = worker.lock.map { ", waits for \($0.kind)" + ($0.owner.map { " of \($0.numberAndName)" } ?? "") }
        return StyledText(frame.function ?? frame.symbol ?? "\(frame.address)", .bold, limit: 120)
            + "\(line ?? "")\(lock ?? "")"
    }
}
