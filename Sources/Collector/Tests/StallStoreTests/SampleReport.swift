import StallReports

extension StallReport {
    /// A stall of one function. Stalls of functions with the same name are of one fault.
    static func sample(
        id: ULID,
        startedAt start: Timestamp,
        milliseconds: Int64,
        state: StallState,
        function: String,
        verdict: Verdict,
        service: String,
        release: String,
        host: String
    ) -> StallReport {
        let frame = Frame(address: 1, function: function, own: true)
        return StallReport(
            id: id,
            kind: .blocked,
            state: state,
            startedAt: start,
            detectedAt: start,
            endedAt: state == .ongoing ? nil : start.advanced(byNanoseconds: milliseconds * 1_000_000),
            durationNs: milliseconds * 1_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .init(name: host),
            service: .init(name: service, version: release),
            process: .init(pid: 7),
            watched: .init(label: "main"),
            thread: .init(id: 7),
            cause: .init(verdict: verdict, summary: "It computed."),
            culprit: .init(function: function, stack: 0, frame: 0),
            fingerprint: .make(kind: .blocked, frames: [frame], modules: [])
        )
    }
}
