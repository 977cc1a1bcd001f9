import StallReports

enum Sample {
    static let start = Timestamp(seconds: 1_795_000_000)
    static let host = HostIdentity(name: "host")
    static let process = ProcessIdentity(pid: 7)

    static func report(
        id: ULID = .make(),
        fingerprint: String = "v1:0123456789abcdef",
        ms: Int64 = 612,
        suppressed: Int = 0,
        function: String = "shop.Cart.total()"
    ) -> StallReport {
        guard let fingerprint = Fingerprint(rawValue: fingerprint) else { preconditionFailure("not a fingerprint") }
        return StallReport(
            id: id,
            kind: .blocked,
            state: .recovered,
            startedAt: start,
            detectedAt: start,
            endedAt: start.advanced(byNanoseconds: ms * 1_000_000),
            durationNs: ms * 1_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: host,
            process: process,
            watched: .init(label: "main"),
            thread: .init(id: 7),
            cause: .init(verdict: .onCPU),
            culprit: .init(function: function, stack: 0, frame: 0),
            fingerprint: fingerprint,
            suppressed: suppressed
        )
    }

    /// A completed run that counted no stalls.
    static func run() -> RunRecord {
        RunRecord(
            state: .stopped,
            startedAt: start,
            updatedAt: start,
            host: host,
            process: process,
            monitorVersion: "0.1.0",
            watched: [.init(label: "main", watchedNs: 59_000_000_000)]
        )
    }
}
