extension ReportDirectory {
    /// Writes down what readers already say: stalls and runs whose process died are `terminated`. Then removes the live records of
    /// such processes. For a monitor's start, after ``prepare()``.
    ///
    /// Returns the stalls closed. Files that cannot be read stay as they are, and so do those of other users: what these claim is shown by
    /// readers, and must not become reports of ours.
    @discardableResult
    public func closeTerminated(liveness: ProcessLiveness = ProcessLiveness()) throws(ReportError) -> [StallReport] {
        let reader = ReportReader(path: path, liveness: liveness)
        let directory = try OpenDirectory(path: path)
        let owner = try directory.ownerOfNewFiles()
        var live: [LiveProcess] = []
        for process in try reader.liveProcesses().processes {
            let name = LiveRecordName(run: process.record.run).description
            if directory.status(of: name)?.owner == owner { live.append(process) }
        }
        // As they stand in the files: a reader that could see would have closed them already.
        let unseen = try ReportReader(path: path, liveness: .blind).contents()
        let orphans = reader.orphans(of: live, besides: try reader.names())
        var closed: [StallReport] = []
        for report in unseen.reports where report.state == .ongoing {
            guard directory.status(of: ReportFileName(.stall, report.id).description)?.owner == owner else { continue }
            if let report = reader.seenAgain(report), report.state != .ongoing { closed.append(report) }
        }
        for report in closed + orphans { try write(report) }
        for run in unseen.runs where run.state == .running {
            guard directory.status(of: ReportFileName(.run, run.id).description)?.owner == owner else { continue }
            if let run = try? reader.run(run.id), run.state == .terminated { try write(run) }
        }
        try removeDeadRecords(reader, of: owner)
        return closed + orphans
    }

    /// What the live records of dead processes knew stands in the reports now. One that cannot be removed tells the next start the same.
    private func removeDeadRecords(_ reader: ReportReader, of owner: UInt32) throws(ReportError) {
        let directory = try OpenDirectory(path: path)
        for name in try directory.names().compactMap({ LiveRecordName($0) }) {
            // One that cannot be read is left for somebody to look at.
            guard directory.status(of: name.description)?.owner == owner,
                let process = try? .some(directory.liveProcess(name))
            else { continue }
            if process.map({ $0.status(by: reader.liveness) == .dead }) ?? true {
                try? directory.remove(name.description)
            }
        }
    }
}
