import StallReports

/// The stalls of one fault that one report, or one line of a run record, represents.
struct Occurrence {
    let fingerprint: Fingerprint
    /// Nil if it is not known.
    let service: String?
    let label: String?
    let type: WatchedType?
    let verdict: StallReports.Verdict?
    /// The number of stalls, including those that were only counted.
    let count: Int
    /// Their total duration, as far as known.
    let totalNs: Int64
    let longestNs: Int64
    /// Nil for stalls without a report.
    let stall: StallOutline?
    /// The run record's data, if `stall` is nil.
    let countedOnly: RunRecord.Repeated?
}

extension Occurrence {
    /// All stalls in reports and run records.
    static func all(in overview: ReportReader.Overview) -> [Occurrence] {
        let reported = overview.stalls.map { Occurrence($0) }
        // Stalls that were only counted get further data from reports of the same fault.
        let known = Dictionary(reported.map { ($0.fingerprint, $0) }) { first, _ in first }
        return reported
            + overview.runs.flatMap { run in
                (run.repeated ?? []).map { Occurrence($0, in: run, like: known[$0.fingerprint]) }
            }
    }

    private init(_ stall: StallOutline) {
        (fingerprint, verdict) = (stall.fingerprint, stall.verdict)
        (service, label, type) = (stall.service, stall.label, stall.type)
        count = max(0, stall.suppressed).addingSaturated(1)
        totalNs = stall.durationNs.addingSaturated(max(0, stall.repeats?.totalNs ?? 0))
        longestNs = stall.longestNs
        (self.stall, countedOnly) = (stall, nil)
    }

    private init(_ fault: RunRecord.Repeated, in run: RunRecord, like known: Occurrence?) {
        fingerprint = fault.fingerprint
        service = run.service?.name
        (label, type, verdict) = (fault.label ?? known?.label, fault.type ?? known?.type, known?.verdict)
        count = max(0, fault.repeats.count)
        (totalNs, longestNs) = (max(0, fault.repeats.totalNs), max(0, fault.repeats.longestNs))
        (stall, countedOnly) = (nil, fault)
    }
}
