import StallReports

/// Reports of many hosts over many days, as collected in one directory: a few faults cause most of the stalls.
struct Flood {
    /// The numbers of reports, runs, and so on.
    struct Size {
        var reports: Int
        var runs = 200
        var faults = 300
        var days = 30
    }

    private let size: Size
    private let end: Timestamp
    private let templates: [Template]
    /// For each template the sum of the weights up to it.
    private let weights: [Double]
    private let runs: [Run]

    private struct Run {
        let id: ULID
        let host: String
        let service: String
        let release: String
        let startedAt: Timestamp
        let lastsNs: Int64
    }

    init(_ size: Size, endingAt end: Timestamp, seed: UInt64) {
        (self.size, self.end) = (size, end)
        var random = Random(seed: seed)
        templates = (0..<size.faults).map { Template(fault: $0, &random) }
        // Zipf: the second most frequent half as often as the first.
        var sum = 0.0
        weights = (1...size.faults).map { rank in
            sum += 1 / Double(rank)
            return sum
        }
        let spanNs = Int64(size.days) * 86_400_000_000_000
        runs = (0..<size.runs).map { number in
            let startNs = spanNs / Int64(size.runs) * Int64(number)
            let startedAt = end.advanced(byNanoseconds: startNs - spanNs)
            let service = ["shop", "search", "payments", "mail"][number % 4]
            return Run(
                id: ULID(startedAt, random.next()),
                host: "\(service)-\(number % 12 + 1).example.com",
                service: service,
                release: "1.\(number * 10 / size.runs).\(number % 3)",
                startedAt: startedAt,
                lastsNs: spanNs / Int64(size.runs)
            )
        }
    }

    /// The name and contents of a report.
    func report(_ number: Int) -> (name: String, bytes: [UInt8]) {
        var random = Random(seed: UInt64(number) &* 0x9e37_79b9_7f4a_7c15 &+ 1)
        let run = runs[number * runs.count / size.reports]
        let part = Double(number * runs.count % size.reports) / Double(size.reports)
        let startedAt = run.startedAt.advanced(byNanoseconds: Int64(Double(run.lastsNs) * part))
        let id = ULID(startedAt, random.next(), number)
        let wanted = Double(random.next() >> 11) / Double(1 << 53) * (weights.last ?? 1)
        let template = templates[weights.firstIndex { $0 >= wanted } ?? 0]
        // Most are short, some last for seconds.
        let share = Double(random.next() >> 11) / Double(1 << 53)
        let durationNs = Int64(250_000_000 / max(0.01, 1 - share))
        return (
            "\(ReportFileName(.stall, id))",
            template.bytes(
                id: id,
                run: run.id,
                host: run.host,
                service: run.service,
                release: run.release,
                startedAt: startedAt,
                durationNs: durationNs
            )
        )
    }

    /// The run records, of runs that have ended.
    func runRecords() -> [RunRecord] {
        runs.map { run in
            var host = HostIdentity.current()
            host.name = run.host
            let end = run.startedAt.advanced(byNanoseconds: run.lastsNs)
            return RunRecord(
                id: run.id,
                state: .stopped,
                startedAt: run.startedAt,
                updatedAt: end,
                stoppedAt: end,
                host: host,
                service: .init(name: run.service, version: run.release),
                process: .current(),
                monitorVersion: "0.1.0",
                watched: [.init(label: "main", watchedNs: run.lastsNs, turns: 9000)],
                ticks: 1200
            )
        }
    }
}

extension ULID {
    fileprivate init(_ time: Timestamp, _ random: UInt64, _ number: Int = 0) {
        let milliseconds = UInt128(max(0, time.seconds * 1000 + Int64(time.nanoseconds / 1_000_000)))
        self.init(rawValue: milliseconds << 80 | UInt128(random) << 12 | UInt128(number & 0xfff))
    }
}

/// Sebastiano Vigna's SplitMix64.
struct Random {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }
}
