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
        let names = try reader.names()
        let orphans = reader.orphans(of: live, besides: names)
        // One after the other: a directory can hold more than fits into memory.
        var closed: [StallReport] = []
        for name in names where name.content == .stall && directory.status(of: name.description)?.owner == owner {
            // As it stands in the file: a reader that looks for its process would have closed it already.
            guard let report: StallReport = try? reader.parse(name, in: directory), report.state == .ongoing,
                let report = reader.seenAgain(report), report.state != .ongoing
            else { continue }
            closed.append(report)
        }
        // For all writes one: none is to read again what must stay.
        var memory = WriterMemory()
        for report in closed + orphans { try write(report, &memory) }
        for name in names where name.content == .run && directory.status(of: name.description)?.owner == owner {
            guard let run: RunRecord = try? reader.parse(name, in: directory), run.state == .running,
                let run = try? reader.run(run.id), run.state == .terminated
            else { continue }
            try write(run, &memory)
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

    /// They are another run's, and go as such.
    private func write(_ document: some RecoverableDocument, _ memory: inout WriterMemory) throws(ReportError) {
        let content: ReportFileName.Content = document is RunRecord ? .run : .stall
        _ = try write(document.json(), as: ReportFileName(content, document.id), &memory)
        memory.own = []
    }
}
