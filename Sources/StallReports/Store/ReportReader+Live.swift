/// A directory's live records, by run: one is looked up for each ongoing report, and they may be many.
struct LiveRuns: Sendable {
    private let processes: [ULID: LiveProcess]

    init(_ processes: [LiveProcess]) {
        self.processes = Dictionary(processes.map { ($0.record.run, $0) }) { first, _ in first }
    }

    subscript(run: ULID) -> LiveProcess? { processes[run] }
}

extension ReportReader {
    /// The live records in the directory: of living processes, and of dead ones that were not cleaned up. Any thread.
    ///
    /// Throws only if the directory itself cannot be read; `failures` has one error per record that cannot be read.
    public func liveProcesses() throws(ReportError) -> (processes: [LiveProcess], failures: [ReportError]) {
        try liveProcesses(in: OpenDirectory(path: path))
    }

    func liveProcesses(
        in directory: borrowing OpenDirectory
    ) throws(ReportError) -> (processes: [LiveProcess], failures: [ReportError]) {
        var (processes, failures): ([LiveProcess], [ReportError]) = ([], [])
        for name in try directory.names().compactMap({ LiveRecordName($0) }).sorted(by: { $0.run < $1.run }) {
            do throws(ReportError) {
                if let process = try directory.liveProcess(name) { processes.append(process) }
            } catch {
                failures.append(error)
            }
        }
        return (processes, failures)
    }

    /// The document with the data of its run's live record, and whether its process died and left it unfinished.
    func upToDate<Document: RecoverableDocument>(
        _ document: Document,
        in directory: borrowing OpenDirectory,
        _ runs: LiveRuns? = nil
    ) -> (document: Document, isClosed: Bool) {
        var live: LiveProcess?
        if let run = document.liveRun {
            live = if let runs { runs[run] } else { try? directory.liveProcess(LiveRecordName(run: run)) }
        }
        if let closed = document.closed(by: liveness, live) { return (closed, true) }
        return (live.map { document.grown(by: $0, liveness) } ?? document, false)
    }

    /// The current state of a report that was ongoing when it was read: grown, or closed if its process died since. Nil if its
    /// process closed it, which its file shows.
    func seenAgain(_ report: StallReport) -> StallReport? {
        guard let directory = try? OpenDirectory(path: path) else { return report.closed(by: liveness) ?? report }
        let name = ReportFileName(.stall, report.id)
        guard let now: StallReport = try? parse(name, in: directory), now.state == .ongoing else { return nil }
        return upToDate(now, in: directory).document
    }

    /// Stalls that processes had recorded before they died, and that have no report in the directory.
    func orphans(
        of processes: [LiveProcess],
        besides names: some Sequence<ReportFileName>
    ) -> [StallReport] {
        let known = Set(names)
        return processes.filter { !$0.record.stalls.isEmpty && $0.status(by: liveness) == .dead }.flatMap { process in
            process.record.stalls.filter { !known.contains(ReportFileName(.stall, $0.report)) }.map { stall in
                StallReport(stall, of: process.record).closed(as: stall, process.end(by: liveness))
            }
        }
    }
}
