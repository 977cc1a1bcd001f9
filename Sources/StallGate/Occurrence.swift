import StallReading
import StallReports

/// The stalls of one fault that one report, or one line of a run record, represents. There may be a million of these values, so
/// each refers to its report's outline instead of copying it.
struct Occurrence {
    private enum Source {
        case report(of: [StallOutline], index: Int)
        case counted(Counted)
    }

    /// Stalls without a report, with what is known from reports of the same fault.
    private final class Counted {
        let fault: RunRecord.Repeated
        let known: StallOutline?
        let service: String?
        let label: String?
        let type: WatchedType?
        let verdict: StallReports.Verdict?

        init(_ fault: RunRecord.Repeated, in run: RunRecord, like known: StallOutline?) {
            (self.fault, self.known) = (fault, known)
            (label, type, verdict) = (fault.label ?? known?.label, fault.type ?? known?.type, known?.verdict)
            service = fault.service ?? run.service(ofLoop: label, type) ?? known?.service
        }
    }

    private let source: Source

    /// Nil for stalls without a report.
    var stall: StallOutline? {
        switch source {
        case .report(let stalls, let index): stalls[index]
        case .counted: nil
        }
    }

    /// Its report; for stalls without one, a report of the same fault.
    var example: StallOutline? { value({ $0 }, { $0.known }) }

    /// The run record's data, if `stall` is nil.
    var countedOnly: RunRecord.Repeated? {
        switch source {
        case .report: nil
        case .counted(let counted): counted.fault
        }
    }

    private func value<Value>(_ ofReport: (StallOutline) -> Value, _ ofCounted: (Counted) -> Value) -> Value {
        switch source {
        case .report(let stalls, let index): ofReport(stalls[index])
        case .counted(let counted): ofCounted(counted)
        }
    }

    var fingerprint: Fingerprint { value({ $0.fingerprint }, { $0.fault.fingerprint }) }
    /// Nil if it is not known.
    var service: String? { value({ $0.service }, { $0.service }) }
    var label: String? { value({ $0.label }, { $0.label }) }
    var type: WatchedType? { value({ $0.type }, { $0.type }) }
    var verdict: StallReports.Verdict? { value({ $0.verdict }, { $0.verdict }) }
    /// The number of stalls, including those that were only counted.
    var count: Int { value({ max(0, $0.suppressed).addingSaturated(1) }, { max(0, $0.fault.repeats.count) }) }
    /// Their total duration, as far as known.
    var totalNs: Int64 {
        value(
            { $0.durationNs.addingSaturated(max(0, $0.repeats?.totalNs ?? 0)) },
            { max(0, $0.fault.repeats.totalNs) }
        )
    }
    var longestNs: Int64 { value({ $0.longestNs }, { max(0, $0.fault.repeats.longestNs) }) }
    var isOngoing: Bool { value({ $0.state == .ongoing }, { _ in false }) }

    /// All stalls in reports and run records. They are made when they are needed: there may be a million.
    struct All: RandomAccessCollection {
        private let stalls: [StallOutline]
        private let counted: [Occurrence]
        /// Nil for all of them.
        private var rows: [Int]?

        /// - Parameter whole: What the overview was selected from: a fault's report may be older than the stalls that were only counted
        ///   since.
        init(in overview: ReportReader.Overview, outOf whole: ReportReader.Overview? = nil) {
            stalls = overview.stalls
            let counted = overview.runs.flatMap { run in (run.repeated ?? []).map { (run, $0) } }
            // Stalls that were only counted get further data from reports of the same fault.
            let reports = counted.isEmpty ? [] : stalls.oncePerTraits + (whole?.stalls.oncePerTraits ?? [])
            // They may have been counted under another fingerprint of their fault.
            let known = FaultTable(reports.map { ($0.fingerprint, $0) }, FaultNames(reports))
            self.counted = counted.map { run, fault in
                Occurrence(source: .counted(Counted(fault, in: run, like: known[fault.fingerprint])))
            }
        }

        var startIndex: Int { 0 }
        var endIndex: Int { rows?.count ?? stalls.count + counted.count }

        subscript(position: Int) -> Occurrence {
            let row = rows?[position] ?? position
            return row < stalls.count
                ? Occurrence(source: .report(of: stalls, index: row)) : counted[row - stalls.count]
        }

        func without(_ isLeftOut: (Occurrence) -> Bool) -> All {
            var rest = self
            rest.rows = indices.filter { !isLeftOut(self[$0]) }
            return rest
        }
    }
}
