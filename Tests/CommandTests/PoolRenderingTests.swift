import StallReports
import Testing

@testable import stall_monitor

@Suite("Printing a task pool")
struct PoolRenderingTests {
    /// Three workers of a pool with three threads: two at the same place, one without a stack.
    private func report(_ change: (inout StallReport.Pool) -> Void = { _ in }) -> StallReport {
        var report = Sample.report()
        report.watched = .init(type: .taskPool, label: "medium-priority tasks")
        let name = "shop.Orders.confirm(_: shop.Order, with: Swift.String) async throws -> shop.Receipt"
        report.stacks[0].frames[2].function = name
        (report.stacks[0].frames[2].file, report.stacks[0].frames[2].line) = ("/src/shop/Orders.swift", 118)
        report.culprit?.function = name
        let lock = StallReport.Lock(kind: .mutex, address: 0x7f00, owner: .init(id: 82, name: "Thread-7"))
        var pool = StallReport.Pool(
            width: 3,
            running: 3,
            waiting: 12,
            atCulprit: 2,
            workers: [
                .init(
                    thread: .init(id: 81, name: "Thread-6"),
                    standingNs: 1_912_345_678,
                    task: 1_041,
                    verdict: .blocked,
                    stack: 0
                ),
                .init(
                    thread: .init(id: 82, name: "Thread-7"),
                    standingNs: 900_000_000,
                    verdict: .blocked,
                    lock: lock,
                    stack: 0
                ),
                .init(
                    thread: .init(id: 83),
                    standingNs: 0,
                    verdict: .onCPU,
                    error: "There was no time left to take it."
                ),
            ]
        )
        change(&pool)
        report.pool = pool
        return report
    }

    private func table(_ report: StallReport, width: Int?) throws -> [String] {
        PoolTable(report: report, pool: try #require(report.pool), width: width).lines.map(\.plain)
    }

    @Test("full form: a row per worker with its job's duration, task, cause, place and what it waits for")
    func full() throws {
        let name =
            "shop.Orders.confirm(_: shop.Order, with: Swift.String) async throws -> shop.Receipt  Orders.swift:118"
        #expect(
            try table(report(), width: nil) == [
                "  WORKER       IN JOB  TASK  VERDICT  AT",
                "  81 Thread-6  1.91s   1041  waiting  \(name)",
                "  82 Thread-7  900ms         waiting  \(name), waits for mutex of 82 Thread-7",
                "  83           0s            on_cpu   no stack: There was no time left to take it.",
                "",
            ]
        )
    }

    @Test(
        "no line is wider than the terminal; each row has what distinguishes the workers",
        arguments: [60, 72, 80, 100, 120]
    )
    func widths(width: Int) throws {
        let lines = try table(report(), width: width)
        #expect(lines.count == 5 && lines.allSatisfy { $0.count <= width })
        for (line, parts) in zip(
            lines.dropFirst(),
            [["81", "1.91s", "1041"], ["82", "900ms"], ["83", "0s", "on_cpu"]]
        ) {
            for part in parts { #expect(line.contains(part), "\(line)") }
        }
        #expect(lines[1].contains("shop.Orders.confir"))
        let narrow = try table(report(), width: 40)
        #expect(narrow[0].hasPrefix("  WORKER ") && narrow[0].contains("  AT") && !narrow[0].contains("TASK"))
        #expect(narrow.allSatisfy { $0.count <= 40 } && narrow[1].contains("shop.Orders."), "\(narrow)")
        var page = StallPage(report: report())
        page.width = width
        let text = page.lines.map(\.plain)
        for line in lines { #expect(text.contains(line)) }
    }

    @Test("the page has job counts, the pool's width, who waited, and how many workers are at the culprit")
    func page() {
        var report = report()
        report.watched.turnDurations = .init(count: 12, p50Ns: 40_000, p99Ns: 2_000_000, maxNs: 612_000_000)
        let page = StallPage(report: report).lines.map(\.plain)
        #expect(
            page.contains("  pool        3 wide, 3 jobs in progress, at least 12 waiting, 2 workers at the culprit")
        )
        #expect(page.contains("  jobs        p50 40µs, p99 2ms, max 612ms of 12"))
        #expect(page.contains("  watched     medium-priority tasks (task_pool)"))
        #expect(page.contains { $0.hasPrefix("Stack of the worker 4711 main") })
        let quiet = self.report { ($0.width, $0.running, $0.waiting, $0.atCulprit) = (1, 1, nil, nil) }
        #expect(StallPage(report: quiet).lines.map(\.plain).contains("  pool        1 wide, 1 job in progress"))
        let idle = self.report { ($0.waiting, $0.atCulprit) = (0, 1) }
        #expect(
            StallPage(report: idle).lines.map(\.plain).contains(
                "  pool        3 wide, 3 jobs in progress, none waiting, 1 worker at the culprit"
            )
        )
    }

    @Test("a report from before pools were watched has no such lines")
    func older() {
        let page = StallPage(report: Sample.report()).lines.map(\.plain)
        #expect(!page.contains { $0.hasPrefix("  pool") || $0.contains("WORKER") })
    }

    @Test("jobs are listed by pool, the longest with its function; a note mentions long ones")
    func jobs() {
        var watched = RunRecord.Watched(type: .taskPool, label: "medium-priority tasks")
        func table(_ count: Int = 1, width: Int? = nil) -> JobTable {
            JobTable(pools: Array(repeating: .init(processID: 4711, watched: watched), count: count), width: width)
        }
        #expect(table().lines.isEmpty)
        watched.turnDurations = .init(count: 1_240, p50Ns: 40_000, p99Ns: 2_000_000, maxNs: 700_000_000)
        #expect(table().notes == ["medium-priority tasks of process 4711: 1240 jobs, the longest 700ms"])
        watched.jobLengths = [(10_000, 1_237), (1_000_000_000, 2), (nil, 1)].map { .init(upToNs: $0, count: $1) }
        watched.longestJob = "Orders.confirm(_:)"
        #expect(
            table().lines.map(\.plain) == [
                "TASK POOL              PID   JOBS  P50   P99  LONGEST  IN",
                "medium-priority tasks  4711  1240  40µs  2ms  700ms    Orders.confirm(_:)",
            ]
        )
        let note = "3 of 1240 jobs took longer than 100ms, the longest 700ms in Orders.confirm(_:)"
        #expect(table().notes == ["medium-priority tasks of process 4711: \(note)"])
        let named = JobTable(pools: [.init(processID: 4711, watched: watched, host: "web1")])
        #expect(named.notes == ["medium-priority tasks of process 4711 on web1: \(note)"])
        for width in [60, 80, 120] { #expect(table(width: width).lines.allSatisfy { $0.plain.count <= width }) }
        #expect(
            table(width: 38).lines.map(\.plain) == [
                "TASK POOL  JOBS  LONGEST  IN", "medium-p…  1240  700ms    Orders.conf…",
            ]
        )
        watched.turnDurations?.maxNs = 249_999_999
        #expect(table().notes.isEmpty)
        watched.turnDurations?.maxNs = .max
        watched.jobLengths = [.init(upToNs: nil, count: .max), .init(upToNs: .max, count: .max)]
        (watched.label, watched.longestJob) = (Sample.hostileText, Sample.hostileText)
        let hostile = table(1_000, width: 80)
        #expect(hostile.lines.count == 65 && hostile.lines.allSatisfy { !$0.plain.commandsTerminal })
        #expect(hostile.notes.count == 64)
    }

    @Test(
        "hostile names and extreme numbers: no terminal commands, no line too wide, a bounded number of rows"
    )
    func hostile() throws {
        let text = Sample.hostileText
        let hostile = report { pool in
            let worker = StallReport.Worker(
                thread: .init(id: .min, name: text, state: text),
                standingNs: .min,
                task: .max,
                verdict: Verdict(rawValue: text),
                lock: .init(kind: LockKind(rawValue: text), address: 1, owner: .init(id: .max, name: text)),
                stack: .max,
                error: text
            )
            pool = .init(
                width: .min,
                running: .max,
                waiting: .max,
                atCulprit: .min,
                workers: Array(repeating: worker, count: 1_000)
            )
            pool.workers[1].stack = 0
        }
        let lines = try table(hostile, width: 80)
        #expect(lines.count == 259 && lines[257] == "  … 744 more workers")
        #expect(lines.allSatisfy { !$0.commandsTerminal && $0.count <= 80 })
        #expect(StallPage(report: hostile).lines.allSatisfy { !$0.plain.commandsTerminal })
    }
}
