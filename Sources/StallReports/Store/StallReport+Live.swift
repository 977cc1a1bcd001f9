// Data that a live record adds to a report.

extension LiveProcess {
    /// The stall with that report, as it was last sampled.
    func stall(of report: ULID) -> LiveStall? { record.stalls.first { $0.report == report } }
}

extension StallReport {
    /// The report of a stall whose process died: ended, if the loop was seen to turn again, otherwise `terminated`.
    func closed(as stall: LiveStall, _ end: ProcessEnd) -> StallReport {
        var copy = self
        copy.grow(to: stall)
        if stall.state == .recovered {
            copy.state = .recovered
            copy.endedAt = startedAt.advanced(byNanoseconds: stall.durationMaxNs)
        } else {
            copy.cutShort(end)
        }
        return copy
    }

    /// Ends it with its process: the last known duration is kept, as the shortest possible one.
    mutating func cutShort(_ end: ProcessEnd?) {
        (durationMinNs, durationMaxNs) = (durationMinNs ?? durationNs, nil)
        // If only the watching process died, nothing more is known about the watched one.
        state = watcher == nil ? .terminated : .abandoned
        if watcher == nil { processEnd = end }
    }

    /// Extends its duration to the last sample. It never becomes shorter.
    mutating func grow(to stall: LiveStall) {
        guard stall.durationNs >= durationNs else { return }
        durationNs = stall.durationNs
        let isExact = stall.durationMinNs == stall.durationMaxNs
        (durationMinNs, durationMaxNs) = isExact ? (nil, nil) : (stall.durationMinNs, stall.durationMaxNs)
        let present = Severity(duration: .nanoseconds(durationNs))
        if present.rank > severity.rank { severity = present }
    }

    /// Creates a report with the known data of a stall whose process died before reporting it.
    init(_ stall: LiveStall, of record: LiveRecord) {
        let writer = stall.processID == nil ? "process" : "watching process"
        self.init(
            id: stall.report,
            kind: stall.rule.name,
            severity: .warning,
            startedAt: stall.startedAt,
            detectedAt: stall.detectedAt,
            durationNs: 0,
            rule: stall.rule,
            host: record.writer.host,
            // A watcher from outside is not the service whose loop stalled.
            service: stall.processID == nil ? record.writer.service : nil,
            process: stall.processID.map { ProcessIdentity(pid: $0) } ?? record.writer.process,
            run: record.run,
            watched: stall.watched,
            thread: .init(id: stall.threadID ?? 0),
            cause: .init(
                verdict: .unknown,
                summary: "The \(writer) ended before it could write the report; "
                    + "this is what it had noted of the stall.",
                systemCall: stall.systemCall.map { .init(number: $0) }
            ),
            fingerprint: .make(kind: stall.rule.name, frames: [], modules: [])
        )
        watcher = stall.processID.map { _ in record.writer.process }
        grow(to: stall)
    }
}

extension RunRecord {
    /// The record of a run whose process died before it wrote one, made from its live record. Its watched time is the length of
    /// its stalls, because more is unknown.
    init(_ process: LiveProcess, by liveness: ProcessLiveness) {
        let (record, writer) = (process.record, process.record.writer)
        self.init(
            id: record.run,
            state: .terminated,
            startedAt: writer.startedAt,
            updatedAt: max(writer.startedAt, record.lastSign),
            host: writer.host,
            service: writer.service,
            process: writer.process,
            monitorVersion: writer.monitorVersion
        )
        processEnd = process.end(by: liveness)
        for stall in record.stalls {
            stalls[stall.rule.name.rawValue, default: 0] += 1
            let place = watched.firstIndex { $0.type == stall.watched.type && $0.label == stall.watched.label }
            if place == nil { watched.append(Watched(type: stall.watched.type, label: stall.watched.label)) }
            let length = max(0, stall.durationNs)
            let index = place ?? watched.count - 1
            watched[index].watchedNs = watched[index].watchedNs.addingSaturated(length)
        }
        if record.status.waitingReports > 0 {
            writing = Writing()
            writing?.waiting = Int64(clamping: record.status.waitingReports)
        }
    }
}
