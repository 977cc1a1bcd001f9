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

    static let descriptors = [
        StallReport.Descriptor(
            number: 5,
            kind: .file,
            target: "/mnt/a",
            isDeleted: true,
            fileSystem: "nfs4",
            isRemote: true,
            holder: .init(pid: 7, name: "flock"),
            note: "count 3"
        ),
        StallReport.Descriptor(
            number: 6,
            kind: .socket,
            socket: .init(
                family: "tcp",
                local: "10.0.0.3:40112",
                peer: "10.0.0.7:5432",
                state: "established",
                peerProcess: .init(pid: 8),
                silentNs: 30_000_000_000,
                retransmits: 3,
                unacknowledged: 2
            )
        ),
    ]
    static let processors = StallReport.Processors(
        quotaPercent: 20,
        periods: 2,
        throttledPeriods: 2,
        throttledNs: 160_000_000,
        cgroupPressureNs: 1,
        systemPressureNs: 2,
        stealNs: 3,
        load: 1.5,
        runnable: 9,
        count: 2,
        allowed: 1
    )
    /// Two threads that wait for each other.
    static let lockWaits = [
        StallReport.LockWait(
            thread: .init(id: 4713, name: "waits", state: "S"),
            lock: .init(
                kind: .dispatchQueue,
                address: 0x5555_5600_0010,
                label: "com.example.db",
                owner: .init(id: 4712, name: "worker", state: "S"),
                knownBy: .queueState,
                ownerCall: .init(number: 202, name: "futex", arguments: [0x7f00, 0x80])
            )
        ),
        StallReport.LockWait(
            thread: .init(id: 4712, name: "worker", state: "S"),
            lock: .init(kind: .swiftMutex, address: 0x7f00, owner: .init(id: 4713), knownBy: .lockWord, timed: true)
        ),
    ]

    /// A stall of 612 ms from which this process recovered, with every property set.
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
            watched: .init(
                label: "main",
                mode: "default",
                activity: "before_sources",
                turn: 1234,
                turnDurations: .init(count: 1_233, p50Ns: 40_000, p99Ns: 2_000_000, maxNs: 612_000_000)
            ),
            busy: .init(turns: 6, totalNs: 500_000_000, longestNs: 90_000_000, callouts: 7),
            thread: thread,
            cause: .init(
                verdict: .blocked,
                summary: "Asleep in clock_nanosleep.",
                systemCall: .init(
                    number: 230,
                    name: "clock_nanosleep",
                    arguments: [0x1, 0x0, 0x7fff_ffff_e000],
                    decoded: [.init(name: "clock", value: "CLOCK_MONOTONIC")],
                    descriptors: descriptors
                ),
                evidence: .init(
                    cpuNs: 1,
                    runDelayNs: 2,
                    windowNs: 3,
                    majorFaults: 4,
                    waitChannel: "hrtimer_nanosleep",
                    userNs: 1,
                    systemNs: 0,
                    blockIONs: 10_000_000,
                    processors: processors,
                    sampled: .init(samples: 6, running: 20, calling: 70, faulting: 10)
                ),
                lock: lockWaits[0].lock,
                chain: lockWaits,
                cycle: lockWaits
            ),
            stacks: [
                .init(
                    thread: thread,
                    capturedAt: startedAt,
                    method: .quiet,
                    frames: frames,
                    leftOut: .init(after: 1, count: 98_976),
                    error: "ends early",
                    sampledNs: 250_000_000,
                    threads: [thread]
                )
            ],
            culprit: .init(function: "shop.Cart.total()", symbol: "$s4shop", module: "shop", stack: 0, frame: 1),
            modules: modules,
            fingerprint: .make(kind: .blocked, frames: frames, modules: modules),
            suppressed: 3,
            repeats: repeats(),
            trace: .init(traceID: "4bf92f3577b34da6a3ce929d0e0e4736", spanID: "00f067aa0ba902b7"),
            metadata: ["region": "eu"],
            monitor: .init(heldNs: 0, unwindNs: 81_000, symbolicationNs: 9_000, copiedBytes: 4096)
        )
        (report.monitor.watchdogCPUNs, report.monitor.reporterCPUNs) = (300_000, 2_000_000)
        report.monitor.budget = "thinned"
        report.excludedNs = 3_000_000_000
        return report
    }

    /// A stall that is still ongoing, in a given process.
    static func ongoing(id: ULID = .make(), process: ProcessIdentity = .current()) -> StallReport {
        var report = recovered(id: id)
        report.state = .ongoing
        report.endedAt = nil
        report.durationMinNs = nil
        report.durationMaxNs = nil
        report.process = process
        return report
    }

    static func repeats(of report: ULID? = ULID(rawValue: 9), count: Int = 3) -> StallReport.Repeats {
        .init(
            count: count,
            report: report,
            firstAt: start.advanced(byNanoseconds: -9_000_000_000),
            lastAt: start.advanced(byNanoseconds: -1_000_000_000),
            totalNs: 700_000_000,
            longestNs: 250_000_000
        )
    }

    static func run(id: ULID = .make(), state: RunRecord.State = .running) -> RunRecord {
        var record = RunRecord(
            id: id,
            state: state,
            startedAt: start,
            updatedAt: start.advanced(byNanoseconds: 60_000_000_000),
            stoppedAt: state == .stopped ? start.advanced(byNanoseconds: 60_000_000_000) : nil,
            host: .current(),
            service: .init(name: "shop"),
            process: .current(),
            monitorVersion: "0.1.0",
            watched: [
                .init(
                    label: "main",
                    watchedNs: 59_000_000_000,
                    turns: 9000,
                    turnDurations: .init(count: 8_999, p50Ns: 40_000, p99Ns: 2_000_000, maxNs: 612_000_000)
                )
            ],
            ticks: 1200,
            stalls: ["blocked": 1],
            suppressed: 5,
            suppressedBy: ["repeat": 3, "byte_rate": 2],
            repeated: [
                .init(fingerprint: .make(kind: .blocked, frames: frames, modules: modules), repeats: repeats())
            ],
            cost: .init(watchdogCPUNs: 5_000_000, heldNs: 0, captures: 1, bytesWritten: 4096),
            disarmed: "out of memory"
        )
        (record.cost.reporterCPUNs, record.cost.writerCPUNs, record.cost.captureCPUNs) = (1, 2, 3)
        (record.cost.unwindNs, record.cost.symbolicationNs, record.cost.copiedBytes) = (4, 5, 6)
        record.writing = .init(
            waiting: 1,
            waitingBytes: 2,
            failures: 3,
            longestNs: 4,
            problem: "full",
            peakBytes: 5,
            dropped: ["stalls": 6],
            noticePeakBytes: 7,
            concerns: ["filled", "link"]
        )
        record.budget = .init(
            state: "stopped",
            since: start,
            stops: 1,
            thinnedNs: 2,
            stoppedNs: 3,
            skippedSamples: 4,
            skippedStacks: 5
        )
        record.pauses = 2
        record.pauseLog = .init(
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
        record.dismissed = ["traced": 1]
        (record.updatedMonotonicNs, record.watched[0].watching) = (60_000_000_000, 1)
        return record
    }
}
