package import StallReports

extension StallReport {
    /// A stall of the main loop of this process, with nothing that a report can do without. A test sets what it is about.
    package static func minimal(_ state: StallState = .ongoing) -> StallReport {
        StallReport(
            kind: .blocked,
            state: state,
            startedAt: .now(),
            detectedAt: .now(),
            endedAt: state == .recovered ? .now() : nil,
            durationNs: 1,
            rule: .init(name: .blocked, tickNs: 1, ticks: 1),
            host: .current(),
            process: .current(),
            watched: .init(label: "main"),
            thread: .init(id: 1),
            fingerprint: .make(kind: .blocked, frames: [], modules: [])
        )
    }
}
