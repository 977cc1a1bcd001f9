import StallReports

/// Reports and run records as a monitor writes them.
enum Sample {
    static let start = Timestamp(seconds: 1_795_000_000, nanoseconds: 123_456_789)
    static let modules = [
        StallReport.Module(path: "/srv/shop/bin/shop", buildID: "aa11bb22", loadBase: 0x5555_5555_4000),
        StallReport.Module(
            path: "/usr/lib/x86_64-linux-gnu/libc.so.6",
            buildID: "cc33dd44",
            loadBase: 0x7fff_f7c0_0000
        ),
    ]
    static let frames = [
        StallReport.Frame(
            address: 0x7fff_f7ce_5d3d,
            module: 1,
            offset: 0xe5d3d,
            function: "clock_nanosleep",
            symbol: "clock_nanosleep",
            functionOffset: 0x6d,
            foundBy: .programCounter
        ),
        StallReport.Frame(
            address: 0x5555_5555_6010,
            module: 0,
            offset: 0x2010,
            function: "shop.Cart.total() -> Swift.Int",
            symbol: "$s4shop4CartV5totalSiyF",
            functionOffset: 0x10,
            own: true,
            foundBy: .unwindTable
        ),
    ]

    /// A stall of 612 ms that this process recovered from, with every property set.
    static func recovered(id: ULID = .make(), startedAt: Timestamp = start) -> StallReport {
        let thread = StallReport.Thread(id: 4711, name: "main", state: "S")
        var report = StallReport(
            id: id,
            kind: .blocked,
            state: .recovered,
            severity: .error,
            startedAt: startedAt,
            detectedAt: startedAt.advanced(byNanoseconds: 250_000_000),
            endedAt: startedAt.advanced(byNanoseconds: 612_000_000),
            durationNs: 612_000_000,
            durationMinNs: 600_000_000,
            durationMaxNs: 650_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .current(),
            service: .init(name: "shop", version: "1.2", instance: "a"),
            process: .current(),
            run: ULID(rawValue: 7),
            watched: .init(label: "main", mode: "default", activity: "before_sources", turn: 1234),
            thread: thread,
            cause: .init(
                verdict: .blocked,
                summary: "Asleep in clock_nanosleep.",
                systemCall: .init(number: 230, name: "clock_nanosleep", arguments: [0x1, 0x0, 0x7fff_ffff_e000]),
                evidence: .init(cpuNs: 1, runDelayNs: 2, windowNs: 3, majorFaults: 4, waitChannel: "hrtimer_nanosleep")
            ),
            stacks: [
                .init(
                    thread: thread,
                    capturedAt: startedAt,
                    method: .quiet,
                    frames: frames,
                    leftOut: .init(after: 1, count: 98_976),
                    error: "ends early"
                )
            ],
            culprit: .init(function: "shop.Cart.total()", symbol: "$s4shop", module: "shop", stack: 0, frame: 1),
            modules: modules,
            fingerprint: .make(kind: .blocked, frames: frames, modules: modules),
            suppressed: 3,
            trace: .init(traceID: "4bf92f3577b34da6a3ce929d0e0e4736", spanID: "00f067aa0ba902b7"),
            metadata: ["region": "eu"],
            monitor: .init(heldNs: 0, unwindNs: 81_000, symbolicationNs: 9_000, copiedBytes: 4096)
        )
        report.excludedNs = 3_000_000_000
        return report
    }

    /// A stall that still lasts, in a given process.
    static func ongoing(id: ULID = .make(), process: ProcessIdentity = .current()) -> StallReport {
        var report = recovered(id: id)
        report.state = .ongoing
        report.endedAt = nil
        report.durationMinNs = nil
        report.durationMaxNs = nil
        report.process = process
        return report
    }

    static func run(id: ULID = .make(), state: RunRecord.State = .running) -> RunRecord {
        var run = RunRecord(
            id: id,
            state: state,
            startedAt: start,
            updatedAt: start.advanced(byNanoseconds: 60_000_000_000),
            stoppedAt: state == .stopped ? start.advanced(byNanoseconds: 60_000_000_000) : nil,
            host: .current(),
            service: .init(name: "shop"),
            process: .current(),
            monitorVersion: "0.1.0",
            watched: [.init(label: "main", watchedNs: 59_000_000_000, turns: 9000)],
            ticks: 1200,
            stalls: ["blocked": 1],
            cost: .init(watchdogCPUNs: 5_000_000, heldNs: 0, captures: 1, bytesWritten: 4096),
            disarmed: "out of memory"
        )
        run.pauses = 2
        run.pauseLog = .init(
            latest: [
                .init(kind: .suspended, startedAt: start, durationNs: 3_600_000_000_000),
                .init(kind: .traced, startedAt: start, durationNs: 2_000_000_000, watch: "main"),
            ],
            totals: [
                "suspended": .init(count: 1, durationNs: 3_600_000_000_000),
                "traced": .init(count: 1, durationNs: 2_000_000_000),
                "expected_slow": .init(count: 7, durationNs: 9_000_000),
            ]
        )
        run.dismissed = ["traced": 1]
        run.droppedNotices = 0
        return run
    }
}
