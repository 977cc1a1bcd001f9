/// A directory's live records, by their runs: of each report under way one is asked for, and they may be many.
struct LiveRuns: Sendable {
    private let processes: [ULID: LiveProcess]

    init(_ processes: [LiveProcess]) {
        self.processes = Dictionary(processes.map { ($0.record.run, $0) }) { first, _ in first }
    }

    subscript(run: ULID) -> LiveProcess? { processes[run] }
}

extension ReportReader {
    /// The live records in the directory: of processes that live, and of those that died and were not tidied up since. Any thread.
    ///
    /// Throws only when the directory itself cannot be read; `failures` has one per record that cannot be.
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

    /// The document with what its run's live record knows of it, and whether its process is dead and left it so.
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

    /// A report that was ongoing when it was read, with what is known now: grown, or closed if its process died since. Nil if its
    /// process closed it, which its file tells.
    func seenAgain(_ report: StallReport) -> StallReport? {
        guard let directory = try? OpenDirectory(path: path) else { return report.closed(by: liveness) ?? report }
        let name = ReportFileName(.stall, report.id)
        guard let now: StallReport = try? parse(name, in: directory), now.state == .ongoing else { return nil }
        return upToDate(now, in: directory).document
    }

    /// Stalls that processes had noted before they died, and that have no report in the directory.
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
