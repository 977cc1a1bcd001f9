import StallReports

/// The jobs of task pools, a row for each pool: how many there were and how long they took, also where nothing stalled.
struct JobTable {
    struct Pool {
        var processID: Int32
        var watched: RunRecord.Watched
    }

    let pools: [Pool]
    var width: Int?

    /// More pools than these are not told: a file may claim any number.
    private static let limit = 64
    /// From here on one job is worth a word where nothing stalled.
    private static let longNs: Int64 = 250_000_000

    /// Without a pool that has run a job, none.
    var lines: [StyledText] {
        let told = pools.filter { $0.watched.turnDurations != nil }.prefix(Self.limit)
        guard !told.isEmpty else { return [] }
        var table = TextTable([
            .init(title: "TASK POOL", minimum: 9), .init(title: "PID"), .init(title: "JOBS"), .init(title: "P50"),
            .init(title: "P99"), .init(title: "LONGEST"), .init(title: "IN", minimum: 12),
        ])
        for pool in told {
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

    /// `medium-priority tasks of process 4711: 1 of 73 jobs took longer than 100ms, the longest 700ms in handle(_:)`: of pools that had a long one.
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
            return
                "\(pool.watched.label) of process \(pool.processID): \(some)\(lengths.count) jobs\(verb), the longest "
                + DurationText(nanoseconds: lengths.maxNs).short + place
        }
    }
}
