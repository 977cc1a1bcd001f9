import StallGate
import StallReports

/// The faults of report directories, read one stall at a time.
struct FaultSurvey {
    private let selection: StallSelection
    private let tally: FaultTally
    private let runs: [RunRecord]
    /// What could not be read.
    let failures: [ReportError]
    private let watchedNs: Int64

    init(_ sources: ReportSources, _ selection: StallSelection) throws(ReportError) {
        let catalogs = try sources.catalogs()
        let (runs, unreadable) = catalogs.runs()
        var failures = catalogs.failures + unreadable
        // By their names alone it is known when stalls began, to a fraction of a second.
        let start = selection.since ?? catalogs.stalls.first?.timestamp ?? .now()
        var tally = FaultTally(span: TimeSpan(start: start, end: selection.until ?? .now()))
        // Of which fault a stall is shows when all names are known.
        var loose = selection
        loose.fingerprints = []
        var seen: Set<ULID> = []
        for catalog in catalogs.all {
            failures += try catalog.forEachOutline { stall in
                guard catalogs.all.count == 1 || seen.insert(stall.id).inserted else { return }
                if loose.includes(stall) { tally.add(stall) }
            }
        }
        let chosen = runs.filter { selection.includes($0) }
        // Those are left out of which nothing tells whether they are wanted.
        for fault in chosen.flatMap({ $0.repeated ?? [] }) where fault.membership(in: loose) == .wanted {
            tally.add(fault)
        }
        (self.selection, self.tally, self.runs, self.failures) = (selection, tally, runs, failures)
        watchedNs = chosen.flatMap { $0.watched(in: selection) }.map { max(0, $0.watchedNs) }.saturatingSum()
    }

    func faults(by order: FaultOrder) -> [Fault] {
        let all = tally.all(watchedNs: watchedNs, by: order)
        guard !selection.fingerprints.isEmpty else { return all }
        return all.filter { fault in
            selection.fingerprints.contains { prefix in
                ([fault.fingerprint] + fault.aliases).contains(where: prefix.matches)
            }
        }
    }

    /// What its page tells beyond the sums. Reads the outlines again, and the latest of its reports.
    func evidence(of fault: Fault, in catalogs: Catalogs) throws(ReportError) -> FaultEvidence {
        let names = Set([fault.fingerprint] + fault.aliases)
        var loose = selection
        loose.fingerprints = []
        var (evidence, seen): (FaultEvidence, Set<ULID>) = (FaultEvidence(), [])
        for catalog in catalogs.all {
            _ = try catalog.forEachOutline { stall in
                guard names.contains(stall.fingerprint), loose.includes(stall), seen.insert(stall.id).inserted else {
                    return
                }
                evidence.add(stall)
            }
        }
        evidence.read { try? catalogs.report($0) }
        return evidence
    }

    func document(_ faults: [Fault]) -> FaultDocument {
        FaultDocument(at: .now(), since: tally.span.start, until: tally.span.end, watchedNs: watchedNs, faults: faults)
    }

    /// "No faults" and "nobody looked" are different things.
    var emptyNote: String {
        if !failures.isEmpty { return "no stalls in what can be read" }
        if runs.isEmpty { return "no stalls, and no monitor has ever written here; is this the right directory?" }
        return selection.nothingFound
    }
}
