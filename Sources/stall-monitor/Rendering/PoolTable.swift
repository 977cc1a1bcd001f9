import StallReports

/// The workers of a task pool, one row each: how long, why and where each is blocked.
struct PoolTable {
    let report: StallReport
    let pool: StallReport.Pool
    /// The terminal's width. Nil: unlimited.
    var width: Int?

    /// The largest number of workers listed: a file may contain any number.
    private static let limit = 256

    /// `2 wide, 2 jobs in progress, at least 3 waiting`
    static func summary(of pool: StallReport.Pool) -> StyledText {
        let waiting =
            switch pool.waiting {
            case nil: ""
            case 0: ", none waiting"
            case let count?: ", at least \(count) waiting"
            }
        let culprit = pool.atCulprit.map { ", \(quantity($0, "worker")) at the culprit" } ?? ""
        return
            "\(pool.width) wide, \(quantity(pool.running, "job")) in progress\(waiting)\(culprit)"
    }

    var lines: [StyledText] {
        guard !pool.workers.isEmpty else { return [] }
        var table = TextTable([
            .init(title: "WORKER", minimum: 14), .init(title: "IN JOB", rank: 3), .init(title: "TASK", rank: 1),
            .init(title: "VERDICT", minimum: 9, rank: 2), .init(title: "AT", minimum: 20),
        ])
        for worker in pool.workers.prefix(Self.limit) { table.append(cells(worker)) }
        let left = pool.workers.count - Self.limit
        let more: [StyledText] = left > 0 ? ["\("… \(quantity(left, "more worker"))", .dim)"] : []
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
        let line = frame.sourcePlace.map { "  \($0)" }
        let lock = worker.lock.map { ", waits for \($0.kind)" + ($0.owner.map { " of \($0.numberAndName)" } ?? "") }
        return StyledText(frame.function ?? frame.symbol ?? "\(frame.address)", .bold, limit: 120)
            + "\(line ?? "")\(lock ?? "")"
    }
}

/// The jobs of task pools, one row for each pool: their number and lengths. Shown even without stalls.
struct JobTable {
    struct Pool {
        var processID: Int32
        var watched: RunRecord.Watched
        /// For notes about processes of several hosts.
        var host: String?
    }

    let pools: [Pool]
    var width: Int?

    /// The largest number of pools listed: a file may contain any number.
    private static let limit = 64
    /// Jobs of this length are noted even if nothing stalled.
    private static let longNs: Int64 = 250_000_000

    /// Empty if no pool has run a job.
    var lines: [StyledText] {
        let shown = pools.filter { $0.watched.turnDurations != nil }.prefix(Self.limit)
        guard !shown.isEmpty else { return [] }
        var table = TextTable([
            .init(title: "TASK POOL", minimum: 9), .init(title: "PID", rank: 2), .init(title: "JOBS", rank: 4),
            .init(title: "P50", rank: 1), .init(title: "P99", rank: 3), .init(title: "LONGEST"),
            .init(title: "IN", minimum: 12, rank: 5),
        ])
        for pool in shown {
            guard let lengths = pool.watched.turnDurations else { continue }
            table.append([
                StyledText(pool.watched.label, .bold, limit: 80),
                "\(pool.processID)",
                "\(lengths.count)",
                "\(DurationText(nanoseconds: lengths.p50Ns).short)",
                "\(DurationText(nanoseconds: lengths.p99Ns).short)",
                "\(DurationText(nanoseconds: lengths.maxNs).short)",
                StyledText(pool.watched.longestJob ?? "", limit: 120),
            ])
        }
        return table.lines(width: width)
    }

    /// For each pool with a long job: `medium-priority tasks of process 4711: 1 of 73 jobs took longer than 100ms, the longest
    /// 700ms in handle(_:)`.
    var notes: [String] {
        pools.prefix(Self.limit).compactMap { pool in
            guard let lengths = pool.watched.turnDurations, lengths.maxNs >= Self.longNs else { return nil }
            let longer = (pool.watched.jobLengths ?? []).filter { $0.upToNs.map { $0 > 100_000_000 } ?? true }
            let count = longer.reduce(UInt64(0)) { sum, next in
                let (sum, isTooLarge) = sum.addingReportingOverflow(next.count)
                return isTooLarge ? .max : sum
            }
            let some = pool.watched.jobLengths == nil ? "" : "\(count) of "
            let verb = pool.watched.jobLengths == nil ? "" : " took longer than 100ms"
            let place = pool.watched.longestJob.map { " in \($0)" } ?? ""
            let host = pool.host.map { " on \($0)" } ?? ""
            return
                "\(pool.watched.label) of process \(pool.processID)\(host): \(some)\(lengths.count) jobs\(verb), the longest "
                + DurationText(nanoseconds: lengths.maxNs).short + place
        }
    }
}
