import Testing

@testable import StallReading
@testable import StallReports

@Suite("The report of a task pool")
struct PoolReportTests {
    @Test("It is the same after encoding and decoding, with all properties of pool and workers, and with none")
    func roundTrip() throws {
        let report = Sample.starved()
        #expect(try StallReport(json: report.json()) == report)
        var bare = report
        bare.pool = .init(width: 1, running: 1, workers: [.init(thread: .init(id: 7), standingNs: 0)])
        #expect(try StallReport(json: bare.json()) == bare)
        let text = String(decoding: try bare.json(), as: UTF8.self)
        #expect(!text.contains("waiting") && !text.contains("at_culprit") && !text.contains(#""task""#))
    }

    @Test("A report from before pools existed has none; one with unknown pool properties is read")
    func versions() throws {
        var older = Sample.recovered()
        #expect(older.pool == nil && older.workersAtCulprit == nil)
        older = try StallReport(json: older.json())
        #expect(older.pool == nil)
        let text = String(decoding: try Sample.starved().json(), as: UTF8.self)
        let newer = text.replacing(#""pool":{"#, with: #""pool":{"queue":{"depth":[1]},"#)
            .replacing(#""standing_ns":"#, with: #""naps":3,"standing_ns":"#)
            .replacing(#""type":"task_pool""#, with: #""type":"lake""#)
        var read = try StallReport(json: Array(newer.utf8))
        #expect(read.watched.type == WatchedType(rawValue: "lake"))
        read.watched.type = .taskPool
        #expect(read == Sample.starved())
    }

    @Test("A list's outline and an older reader, which does not know pools, read what all stalls share")
    func olderReader() throws {
        /// The properties that an older reader requires.
        struct Older: Decodable {
            struct Watched: Decodable { let type, label: String }
            struct Stack: Decodable { let role: String }
            let kind, state, fingerprint: String
            let watched: Watched
            let stacks: [Stack]
        }
        let report = Sample.starved()
        let older: Older = try ReportJSON.decode(report.json())
        #expect((older.kind, older.watched.type, older.watched.label) == ("blocked", "task_pool", "workers"))
        #expect(older.stacks.map(\.role) == ["stalled", "stalled", "lock_owner"])
        let outline: StallOutline = try ReportJSON.decode(report.json())
        #expect(outline == StallOutline(report))
    }

    @Test("Workers at the culprit are those with it on their stacks, and those that wait for them, also indirectly")
    func atCulprit() {
        var report = Sample.starved()
        // Two are at the culprit themselves; the third waits for one of them.
        #expect(report.workersAtCulprit == 3)
        report.pool?.workers[2].lock?.owner = .init(id: 999)
        #expect(report.workersAtCulprit == 2)
        report.pool?.workers[2].lock = nil
        #expect(report.workersAtCulprit == 2)
        report.culprit?.stack = 1
        report.culprit?.frame = 0
        #expect(report.workersAtCulprit == 1)
        report.culprit = nil
        #expect(report.workersAtCulprit == nil)
    }

    @Test("Chains and circles of waiting workers are followed to their end")
    func chains() {
        var report = Sample.starved()
        func worker(_ id: Int32, waitsFor owner: Int32?) -> StallReport.Worker {
            var worker = StallReport.Worker(thread: .init(id: id), standingNs: 1)
            worker.lock = owner.map { .init(kind: .mutex, address: 1, owner: .init(id: $0)) }
            return worker
        }
        // Eight workers, each waiting for the one before it; 71 and 72 wait for each other.
        report.pool?.workers = (1...8).map { worker($0, waitsFor: $0 > 1 ? $0 - 1 : nil) }
        report.pool?.workers += [worker(71, waitsFor: 72), worker(72, waitsFor: 71)]
        report.stacks[0].thread = .init(id: 1)
        report.stacks[0].threads = nil
        #expect(report.workersAtCulprit == 8)
    }

    @Test("A file may contain any number: a culprit outside the stacks counts no worker, and nothing traps")
    func hostile() throws {
        let text = String(decoding: try Sample.starved().json(), as: UTF8.self)
        let edits = [
            (#""width":3"#, #""width":-9223372036854775808"#), (#""running":3"#, #""running":9223372036854775807"#),
            (#""waiting":12"#, #""waiting":18446744073709551615"#),
            (#""culprit":{"frame":1"#, #""culprit":{"frame":-1"#),
            (#""standing_ns":900000000"#, #""standing_ns":-9223372036854775808"#),
            (#""task":41"#, #""task":18446744073709551615"#),
        ]
        for (old, new) in edits {
            try #require(text.contains(old), "\(old)")
            let report = try StallReport(json: Array(text.replacing(old, with: new).utf8))
            #expect(report.workersAtCulprit.map { (0...3).contains($0) } == true, "\(new)")
            #expect(try StallReport(json: report.json()) == report)
        }
        #expect(throws: ReportError.self) {
            try StallReport(json: Array(text.replacing(#""waiting":12"#, with: #""waiting":-1"#).utf8))
        }
    }
}

extension Sample {
    /// Three workers: two sleep in the same function, the third waits for a lock that one of them holds. The report also has the
    /// stack of a lock owner that is not a worker.
    static func starved(id: ULID = ULID(rawValue: 5)) -> StallReport {
        var report = recovered(id: id)
        report.host = .init(name: "web1", bootID: "b", kernel: "6.1", cpus: 3)
        report.process = .init(pid: 4711, executable: "/srv/shop")
        report.watched = .init(type: .taskPool, label: "workers")
        report.busy = nil
        let threads = [81, 82, 83].map { StallReport.Thread(id: $0, name: "worker", state: "S") }
        let sleeping =
            frames + [
                StallReport.Frame(
                    address: 0x5555_5555_7010,
                    module: 0,
                    function: "shop.handle()",
                    symbol: "$s6handle",
                    own: true
                )
            ]
        let waiting = [StallReport.Frame(address: 0x5555_5555_8010, module: 0, symbol: "$s4lock", own: true)]
        report.thread = threads[0]
        report.stacks = [
            .init(thread: threads[0], capturedAt: start, count: 2, frames: sleeping, threads: Array(threads[..<2])),
            .init(thread: threads[2], capturedAt: start, frames: waiting),
            .init(role: .lockOwner, thread: .init(id: 90), capturedAt: start, frames: waiting),
        ]
        report.culprit = .init(
            function: "shop.Cart.total() -> Swift.Int",
            symbol: "$s4shop4CartV5totalSiyF",
            module: "shop",
            stack: 0,
            frame: 1
        )
        let lock = StallReport.Lock(kind: .mutex, address: 0x7f00, owner: threads[1], knownBy: .mutexOwner)
        report.pool = .init(
            width: 3,
            running: 3,
            waiting: 12,
            atCulprit: 3,
            workers: [
                .init(thread: threads[0], standingNs: 900_000_000, task: 41, verdict: .blocked, stack: 0),
                .init(thread: threads[1], standingNs: 800_000_000, task: 42, verdict: .blocked, stack: 0),
                .init(
                    thread: threads[2],
                    standingNs: 700_000_000,
                    verdict: .blocked,
                    lock: lock,
                    stack: 1,
                    error: "cut"
                ),
            ]
        )
        return report
    }
}
