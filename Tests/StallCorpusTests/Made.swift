import StallReports

@testable import StallCorpus

/// A synthetic scenario, its receipts and its reports. Times are milliseconds since a fixed time.
enum Made {
    static func time(_ milliseconds: Int64) -> Timestamp {
        Timestamp(seconds: 1_700_000_000, nanoseconds: milliseconds * 1_000_000)
    }

    static func span(_ start: Int64, _ end: Int64, runDelay: Int64 = 0) -> Receipt.Span {
        Receipt.Span(
            label: "worker",
            startedAt: time(start),
            endedAt: time(end),
            wallNs: (end - start) * 1_000_000,
            cpuNs: 1_000_000,
            runDelayNs: runDelay * 1_000_000
        )
    }

    static func receipt(_ start: Int64, _ end: Int64, runDelay: Int64 = 0) -> Receipt {
        Receipt(stalls: [span(start, end, runDelay: runDelay)])
    }

    static let scenario = Scenario.stall(
        "made-up",
        .locks,
        on: .worker,
        [.blocked],
        culprit: "waitForIt",
        owner: "holder"
    ) { _ in }

    static func report(
        _ start: Int64,
        _ end: Int64,
        label: String = "worker",
        kind: StallKind = .blocked,
        verdict: Verdict = .blocked,
        culprit: String? = "waitForIt(_:)",
        owner: String? = "holder"
    ) -> StallReport {
        var report = StallReport(
            kind: kind,
            state: .recovered,
            startedAt: time(start),
            detectedAt: time(start + 250),
            endedAt: time(end),
            durationNs: (end - start) * 1_000_000,
            rule: .init(name: kind, tickNs: 50_000_000, ticks: 5),
            host: .current(),
            process: .current(),
            watched: .init(label: label),
            thread: .init(id: 1),
            cause: .init(verdict: verdict, summary: "Made up."),
            culprit: culprit.map { .init(function: $0, stack: 0, frame: 0) },
            fingerprint: .make(kind: kind, frames: [], modules: [])
        )
        if let owner { report.setOwner(StallReport.Thread(id: 2, name: owner)) }
        return report
    }
}

extension StallReport {
    /// As the monitor would report it.
    fileprivate mutating func setOwner(_ thread: Thread) {
        cause.lock = Lock(kind: .mutex, address: 0x1000, owner: thread)
    }
}
