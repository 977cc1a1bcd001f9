import StallReports

/// Stalls of one fault that one report, or one line of a run record, stands for.
struct Occurrence {
    let fingerprint: Fingerprint
    /// Nil where nothing tells.
    let service: String?
    let label: String?
    let type: WatchedType?
    let verdict: StallReports.Verdict?
    /// Stalls, those that were only counted among them.
    let count: Int
    /// All of them together, as far as their lengths are known.
    let totalNs: Int64
    let longestNs: Int64
    /// Nil for stalls that stand in no report.
    let stall: StallOutline?
    /// Where `stall` is nil: what the run record says.
    let countedOnly: RunRecord.Repeated?
}

extension Occurrence {
    /// Everything that reports and run records tell of.
    static func all(in overview: ReportReader.Overview) -> [Occurrence] {
        let reported = overview.stalls.map { Occurrence($0) }
        // What is only counted is known by its reports.
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
        (label, type, verdict) = (known?.label, known?.type, known?.verdict)
        count = max(0, fault.repeats.count)
        (totalNs, longestNs) = (max(0, fault.repeats.totalNs), max(0, fault.repeats.longestNs))
        (stall, countedOnly) = (nil, fault)
    }
}
