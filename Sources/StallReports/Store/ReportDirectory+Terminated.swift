extension ReportDirectory {
    /// Writes what readers already show: stalls and runs whose process died are `terminated`. A run that died with stalls before its record
    /// was written gets one. Then removes the live records of such processes. For a monitor's start, after ``prepare()``.
    ///
    /// Returns the closed stalls. Files that cannot be read are not changed, and neither are those of other users: readers show
    /// their contents, but they must not become our reports.
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
        // One at a time: a directory can contain more than fits into memory.
        var closed: [StallReport] = []
        for name in names where name.content == .stall && directory.status(of: name.description)?.owner == owner {
            // As it is in the file: a reader that checks its process would have closed it already.
            guard let report: StallReport = try? reader.parse(name, in: directory), report.state == .ongoing,
                let report = reader.seenAgain(report), report.state != .ongoing
            else { continue }
            closed.append(report)
        }
        // Shared by all writes, so that none reads again what must stay.
        var memory = WriterMemory()
        for report in closed + orphans { try write(report, &memory) }
        for name in names where name.content == .run && directory.status(of: name.description)?.owner == owner {
            guard let run: RunRecord = try? reader.parse(name, in: directory), run.state == .running,
                let run = try? reader.run(run.id), run.state == .terminated
            else { continue }
            try write(run, &memory)
        }
        for process in live where !process.record.stalls.isEmpty && process.status(by: liveness) == .dead {
            guard !names.contains(ReportFileName(.run, process.record.run)) else { continue }
            try write(RunRecord(process, by: liveness), &memory)
        }
        try removeDeadRecords(reader, of: owner)
        return closed + orphans
    }

    /// The data of dead processes' live records is in the reports now. If one cannot be removed, the next start finds the same
    /// again.
    private func removeDeadRecords(_ reader: ReportReader, of owner: UInt32) throws(ReportError) {
        let directory = try OpenDirectory(path: path)
        for name in try directory.names().compactMap({ LiveRecordName($0) }) {
            // A file that cannot be read is left for inspection.
            guard directory.status(of: name.description)?.owner == owner,
                let process = try? .some(directory.liveProcess(name))
            else { continue }
            if process.map({ $0.status(by: reader.liveness) == .dead }) ?? true {
                try? directory.remove(name.description)
            }
        }
    }

    /// They belong to another run, and may be removed as such.
    private func write(_ document: some RecoverableDocument, _ memory: inout WriterMemory) throws(ReportError) {
        let content: ReportFileName.Content = document is RunRecord ? .run : .stall
        _ = try write(document.json(), as: ReportFileName(content, document.id), &memory)
        memory.own = []
    }
}
