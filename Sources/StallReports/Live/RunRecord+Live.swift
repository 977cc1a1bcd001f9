extension RunRecord {
    /// The record of a run whose process died before it wrote one, made from its live record. The watched time in it is the length of its
    /// stalls: more is not known.
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
