/// Reads the documents of a report directory one at a time, each with the state of its process: what the writer of a directory needs
/// of the others' files, and what readers are made of.
///
/// A value without state; all methods may be called on any thread.
package struct StoredDocuments: Sendable {
    /// Larger files are rejected unread: 16 MiB.
    package static let maximumFileSize = 16 << 20

    package let path: String
    /// Determines which processes are dead, and so what is read as `terminated`.
    package let liveness: ProcessLiveness

    package init(path: String, liveness: ProcessLiveness = ProcessLiveness()) {
        (self.path, self.liveness) = (path, liveness)
    }

    /// The names of the store's files, oldest first. Their contents are not checked.
    package func names() throws(ReportError) -> [ReportFileName] {
        try OpenDirectory(path: path).names().compactMap { ReportFileName($0) }.sorted()
    }

    /// The report in a file.
    ///
    /// - Parameter live: The directory's live records by their runs, read before; nil to read only the one needed.
    package func report(
        _ id: ULID,
        in directory: borrowing OpenDirectory,
        _ live: [ULID: LiveProcess]? = nil
    ) throws(ReportError) -> StallReport {
        try load(ReportFileName(.stall, id), in: directory, live)
    }

    /// The run record in a file.
    package func run(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> RunRecord {
        try load(ReportFileName(.run, id), in: directory)
    }

    // The functions that make and change whole documents are large code. They are never inlined, so that it exists once.

    /// Reads one file, and determines the state of its process.
    @inline(never)
    func load<Document: RecoverableDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory,
        _ live: [ULID: LiveProcess]? = nil
    ) throws(ReportError) -> Document {
        let document: Document = try parse(name, in: directory)
        let (known, isClosed) = upToDate(document, in: directory, live)
        guard isClosed else { return known }
        // A process that ended normally wrote its final version before that, but maybe after we had read the file.
        let again: Document = try parse(name, in: directory)
        return again == document ? known : upToDate(again, in: directory, live).document
    }

    /// The contents of the file, unchanged.
    @inline(never)
    func parse<Document: RecoverableDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory
    ) throws(ReportError) -> Document {
        do throws(ReportError) {
            let bytes = try directory.openFile(name.description).readAll(limit: Self.maximumFileSize)
            let document = try Document(json: bytes)
            guard document.id == name.id else {
                throw ReportError(.malformed, detail: "its id is not the one in its name")
            }
            guard document.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
            return document
        } catch {
            throw error.at(directory.filePath(name.description))
        }
    }

    /// Whether no process will write this file again. A file that cannot be parsed counts as finished.
    func isFinished(_ name: ReportFileName, in directory: borrowing OpenDirectory) -> Bool {
        do throws(ReportError) {
            switch name.content {
            case .stall: return try (load(name, in: directory) as StallReport).state != .ongoing
            case .run: return try (load(name, in: directory) as RunRecord).state != .running
            }
        } catch {
            return error.code != .permissionDenied && error.code != .io
        }
    }
}

extension StoredDocuments {
    /// The live records of some runs, and one error per record that cannot be read.
    package func liveProcesses(
        of runs: [ULID],
        in directory: borrowing OpenDirectory
    ) -> (processes: [LiveProcess], failures: [ReportError]) {
        var (processes, failures): ([LiveProcess], [ReportError]) = ([], [])
        for run in runs {
            do throws(ReportError) {
                if let process = try directory.liveProcess(LiveRecordName(run: run)) { processes.append(process) }
            } catch {
                failures.append(error)
            }
        }
        return (processes, failures)
    }

    /// The document with the data of its run's live record, and whether its process died and left it unfinished.
    @inline(never)
    func upToDate<Document: RecoverableDocument>(
        _ document: Document,
        in directory: borrowing OpenDirectory,
        _ runs: [ULID: LiveProcess]? = nil
    ) -> (document: Document, isClosed: Bool) {
        var live: LiveProcess?
        if let run = document.liveRun {
            live = if let runs { runs[run] } else { try? directory.liveProcess(LiveRecordName(run: run)) }
        }
        if let closed = document.closed(by: liveness, live) { return (closed, true) }
        return (live.map { document.grown(by: $0, liveness) } ?? document, false)
    }

    /// The present state of a report that was ongoing when it was read: grown, or closed if its process died since. Nil if its
    /// process has closed it, as its file shows.
    package func presentState(of report: StallReport) -> StallReport? {
        guard let directory = try? OpenDirectory(path: path) else { return report.closed(by: liveness) ?? report }
        do throws(ReportError) {
            let now: StallReport = try parse(ReportFileName(.stall, report.id), in: directory)
            return now.state == .ongoing ? upToDate(now, in: directory).document : nil
        } catch {
            // What may pass says nothing about the stall: it is looked at again.
            return error.code == .io ? report : nil
        }
    }

    /// Stalls that processes had recorded before they died, and that have no report in the directory.
    package func orphans(of processes: [LiveProcess], besides isWritten: (ULID) -> Bool) -> [StallReport] {
        processes.filter { !$0.record.stalls.isEmpty && $0.status(by: liveness) == .dead }.flatMap { process in
            let stalls = process.record.stalls.filter { !isWritten($0.report) }
            // Of a watcher from outside, the run record names the services of the loops.
            let watcher = stalls.contains { $0.processID != nil } ? runRecord(process.record.run) : nil
            return stalls.map { stall in
                var report = StallReport(stall, of: process.record)
                if stall.processID != nil {
                    let service = watcher?.service(ofLoop: stall.watched.label, stall.watched.type)
                    report.service = service.map { ServiceIdentity(name: $0) }
                }
                return report.closed(as: stall, process.end(by: liveness))
            }
        }
    }

    private func runRecord(_ run: ULID) -> RunRecord? {
        guard let directory = try? OpenDirectory(path: path) else { return nil }
        return try? parse(ReportFileName(.run, run), in: directory)
    }
}
