extension ReportDirectory {
    /// Writes down what readers already say: stalls and runs whose process died are `terminated`. Then removes the live records of
    /// such processes. For a monitor's start, after ``prepare()``.
    ///
    /// Returns the stalls closed. Files that cannot be read stay as they are.
    @discardableResult
    public func closeTerminated(liveness: ProcessLiveness = ProcessLiveness()) throws(ReportError) -> [StallReport] {
        let reader = ReportReader(path: path, liveness: liveness)
        let live = try reader.liveProcesses().processes
        // As they stand in the files: a reader that could see would have closed them already.
        let unseen = try ReportReader(path: path, liveness: .blind).contents()
        let orphans = reader.orphans(of: live, besides: try reader.names())
        let closed = unseen.reports.filter { $0.state == .ongoing }.compactMap { reader.seenAgain($0) }
            .filter { $0.state != .ongoing }
        for report in closed + orphans { try write(report) }
        let runs = unseen.runs.filter { $0.state == .running }.compactMap { try? reader.run($0.id) }
        for run in runs where run.state == .terminated { try write(run) }
        try removeDeadRecords(reader)
        return closed + orphans
    }

    /// What the live records of dead processes knew stands in the reports now. One that cannot be removed tells the next start the same.
    private func removeDeadRecords(_ reader: ReportReader) throws(ReportError) {
        let directory = try OpenDirectory(path: path)
        for name in try directory.names().compactMap({ LiveRecordName($0) }) {
            // One that cannot be read is left for somebody to look at.
            guard let process = try? .some(directory.liveProcess(name)) else { continue }
            if process.map({ $0.status(by: reader.liveness) == .dead }) ?? true {
                try? directory.remove(name.description)
            }
        }
    }
}
