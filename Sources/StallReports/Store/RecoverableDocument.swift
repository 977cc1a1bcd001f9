import Glibc

/// A document that its process updates, and may leave unfinished.
protocol RecoverableDocument: JSONDocument {
    /// The run whose live record may have more data; nil if there can be none.
    var liveRun: ULID? { get }
    /// The document with its end recorded, if its process is dead and did not record it; nil if there is nothing to record.
    ///
    /// - Parameter live: The live record of its run, if there is one.
    func closed(by liveness: ProcessLiveness, _ live: LiveProcess?) -> Self?
    /// The document as its living process would write it now.
    func grown(by live: LiveProcess, _ liveness: ProcessLiveness) -> Self
    /// Whether its numbers are possible.
    var isPossible: Bool { get }
}

extension StallReport: RecoverableDocument {
    var liveRun: ULID? { state == .ongoing ? run : nil }

    func closed(by liveness: ProcessLiveness, _ live: LiveProcess? = nil) -> StallReport? {
        guard state == .ongoing else { return nil }
        guard (live?.status(by: liveness) ?? liveness.status(of: watcher ?? process, on: host)) == .dead else {
            return nil
        }
        if let live, let stall = live.stall(of: id) { return closed(as: stall, live.end(by: liveness)) }
        var copy = self
        copy.cutShort(live?.end(by: liveness))
        return copy
    }

    func grown(by live: LiveProcess, _ liveness: ProcessLiveness) -> StallReport {
        guard state == .ongoing, let stall = live.stall(of: id), stall.durationNs > durationNs else { return self }
        var copy = self
        copy.grow(to: stall)
        return copy
    }

    var isPossible: Bool { [durationNs, durationMinNs ?? 0, durationMaxNs ?? 0].allSatisfy { $0 >= 0 } }
}

extension StallReport {
    /// A report that stands in no report directory, such as one that somebody sent: checked, and closed, as one in a directory is. It has no
    /// live record.
    ///
    /// - Throws: Why it is no report, without a path.
    package init(outsideDirectory json: [UInt8], liveness: ProcessLiveness = ProcessLiveness()) throws(ReportError) {
        let report = try StallReport(json: json)
        guard report.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
        self = report.closed(by: liveness) ?? report
    }
}

extension RunRecord: RecoverableDocument {
    var liveRun: ULID? { state == .running ? id : nil }
    var isPossible: Bool { watched.allSatisfy { $0.watchedNs >= 0 } }

    func closed(by liveness: ProcessLiveness, _ live: LiveProcess? = nil) -> RunRecord? {
        guard state == .running else { return nil }
        guard (live?.status(by: liveness) ?? liveness.status(of: process, on: host)) == .dead else { return nil }
        var copy = self
        copy.state = .terminated
        copy.processEnd = live?.end(by: liveness)
        if let live {
            copy.note(waiting: live.record.status.waitingReports)
            copy.watch(until: live.record.lastSampleMonotonicNs)
        }
        return copy
    }

    /// While its loops rest, a process writes nothing but still watches: as long as it lives, which its live record shows.
    func grown(by live: LiveProcess, _ liveness: ProcessLiveness) -> RunRecord {
        guard state == .running, live.status(by: liveness) == .alive else { return self }
        var copy = self
        copy.note(waiting: live.record.status.waitingReports)
        if let age = ageNs { copy.advance(by: age) }
        return copy
    }

    /// Adds the time from its update to the last sample of its process, which died: while a stall lasts, only the live record is
    /// written. Both times are by the same clock.
    private mutating func watch(until lastSample: UInt64) {
        guard disarmed == nil, let before = updatedMonotonicNs, lastSample > before else { return }
        advance(by: Int64(clamping: lastSample - before))
    }

    /// Makes it what it is this much later: everything that was watched at its update has been watched since.
    ///
    /// - Parameter time: In nanoseconds, not negative.
    private mutating func advance(by time: Int64) {
        updatedAt = updatedAt.advanced(byNanoseconds: time)
        updatedMonotonicNs = updatedMonotonicNs?.addingSaturated(UInt64(clamping: time))
        guard disarmed == nil else { return }
        for index in watched.indices {
            let watching = max(0, Int64(clamping: watched[index].watching ?? 0))
            let more = time.multipliedSaturated(by: watching)
            watched[index].watchedNs = watched[index].watchedNs.addingSaturated(more)
        }
    }

    /// Its age by the clock that gives the lesser value: the wall clock may have been set, and the other one may belong to
    /// another machine. Nil in records of older monitors.
    private var ageNs: Int64? {
        guard let updatedMonotonicNs else { return nil }
        var time = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        let now = UInt64(clamping: time.tv_sec) &* 1_000_000_000 &+ UInt64(clamping: time.tv_nsec)
        let monotonic = now > updatedMonotonicNs ? Int64(clamping: now - updatedMonotonicNs) : 0
        return max(0, min(monotonic, Timestamp.now().nanoseconds(since: updatedAt)))
    }

    /// Records the reports that the disk refused: the written run record is then older than they are.
    private mutating func note(waiting: Int) {
        guard waiting > 0 else { return }
        var updated = writing ?? Writing()
        updated.waiting = max(updated.waiting, Int64(clamping: waiting))
        writing = updated
    }
}

extension ReportDirectory {
    /// Writes what readers already show: stalls and runs whose process died are `terminated`. A run that died with stalls before its record
    /// was written gets one. Then removes the live records of such processes. For a monitor's start, after ``prepare()``.
    ///
    /// Returns the closed stalls. Files that cannot be read are not changed, and neither are those of other users: readers show
    /// their contents, but they must not become our reports.
    ///
    /// - Throws: The error of the first document that cannot be replaced, once all others are closed.
    @discardableResult
    public func closeTerminated(liveness: ProcessLiveness = ProcessLiveness()) throws(ReportError) -> [StallReport] {
        let documents = StoredDocuments(path: path, liveness: liveness)
        return try closeReports(of: deadProcesses(documents), documents)
    }

    /// The processes that are dead now and have left a live record, with what they wrote last.
    ///
    /// It is determined once, before the directory is listed: then the list has every report that such a process has written. One that dies later is
    /// left to the next start, together with its live record.
    func deadProcesses(_ documents: StoredDocuments) throws(ReportError) -> [LiveProcess] {
        let directory = try OpenDirectory(path: path)
        let runs = try directory.names().compactMap { LiveRecordName($0)?.run }.sorted()
        let dead = documents.liveProcesses(of: runs, in: directory).processes
            .filter { $0.status(by: documents.liveness) == .dead }
        // Read again: it may have written more between the first reading and its death.
        return documents.liveProcesses(of: dead.map(\.record.run), in: directory).processes
    }

    /// Closes what dead processes of this user have left, and removes their live records.
    func closeReports(of dead: [LiveProcess], _ documents: StoredDocuments) throws(ReportError) -> [StallReport] {
        let directory = try OpenDirectory(path: path)
        let owner = try directory.ownerOfNewFiles()
        let ours = dead.filter { process in
            directory.status(of: LiveRecordName(run: process.record.run).description)?.owner == owner
        }
        let names = try documents.names()
        let written = Set(names)
        let orphans = documents.orphans(of: ours) { written.contains(ReportFileName(.stall, $0)) }
        let own = names.filter { directory.status(of: $0.description)?.owner == owner }
        let stalls = own.compactMap { documents.endedStall($0, in: directory) } + orphans
        var closing = Closing()
        for report in stalls { write(report, of: report.run, &closing) }
        for name in own {
            // Read only now: the writes before apply the limits, and may have removed it.
            guard let run = documents.endedRun(name, in: directory) else { continue }
            write(run, of: run.id, &closing)
        }
        for process in ours where !process.record.stalls.isEmpty && !written.contains(.init(.run, process.record.run)) {
            write(RunRecord(process, by: documents.liveness), of: process.record.run, &closing)
        }
        try removeRecords(of: Set(ours.map(\.record.run)).subtracting(closing.unclosed), owner)
        if let failure = closing.failure { throw failure }
        return stalls
    }

    /// Removes live records whose data is in the reports now, and torn ones. If one cannot be removed, the next start finds the same
    /// again.
    private func removeRecords(of runs: Set<ULID>, _ owner: UInt32) throws(ReportError) {
        let directory = try OpenDirectory(path: path)
        for name in try directory.names().compactMap({ LiveRecordName($0) }) {
            // A file that cannot be read is left for inspection.
            guard directory.status(of: name.description)?.owner == owner,
                let process = try? .some(directory.liveProcess(name))
            else { continue }
            if process.map({ runs.contains($0.record.run) }) ?? true { try? directory.remove(name.description) }
        }
    }

    /// Writes a document of another run, which the limits may remove as such.
    private func write(_ document: some RecoverableDocument, of run: ULID?, _ closing: inout Closing) {
        let name = ReportFileName(document is RunRecord ? .run : .stall, document.id)
        do throws(ReportError) {
            _ = try write(document.json(), as: name, &closing.memory)
            closing.memory.own = []
        } catch {
            let failure = ReportError(
                error.code,
                path: "\(path)/\(name)",
                detail: [error.detail, "\(name) cannot be closed"].compactMap(\.self).joined(separator: ", "),
                errorNumber: error.errorNumber
            )
            closing.failure = closing.failure ?? failure
            if let run { closing.unclosed.insert(run) }
        }
    }
}

extension StoredDocuments {
    /// The stall of a file in which it is ongoing, although its process has died. Nil for any other file.
    ///
    /// It reads one report at a time, because a directory can contain more than fits into memory.
    fileprivate func endedStall(_ name: ReportFileName, in directory: borrowing OpenDirectory) -> StallReport? {
        // Read without checking its process: a reader that checks would already have closed it.
        guard name.content == .stall, let report: StallReport = try? parse(name, in: directory),
            report.state == .ongoing, let report = presentState(of: report), report.state != .ongoing
        else { return nil }
        return report
    }

    /// The run of a file in which it goes on, although its process has died. Nil for any other file.
    fileprivate func endedRun(_ name: ReportFileName, in directory: borrowing OpenDirectory) -> RunRecord? {
        guard name.content == .run, let run: RunRecord = try? parse(name, in: directory), run.state == .running,
            let run = try? self.run(run.id, in: directory), run.state == .terminated
        else { return nil }
        return run
    }
}

/// What a start has done so far about documents of dead processes.
private struct Closing {
    /// Shared by all writes, so that none reads again what must stay.
    var memory = WriterMemory()
    /// The first document that could not be replaced.
    var failure: ReportError?
    /// The runs with such a document. Their live records stay, for the next start.
    var unclosed: Set<ULID> = []
}
