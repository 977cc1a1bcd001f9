internal import Glibc

/// A document that its process keeps up to date, and may leave unfinished.
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

    /// The last known duration is kept, as the shortest possible one.
    func closed(by liveness: ProcessLiveness, _ live: LiveProcess? = nil) -> StallReport? {
        guard state == .ongoing else { return nil }
        guard (live?.status(by: liveness) ?? liveness.status(of: watcher ?? process, on: host)) == .dead else {
            return nil
        }
        if let live, let stall = live.stall(of: id) { return closed(as: stall, live.end(by: liveness)) }
        var copy = self
        // For a process that only lost its watcher nothing more is known.
        copy.state = watcher == nil ? .terminated : .abandoned
        copy.durationMinNs = durationMinNs ?? durationNs
        copy.durationMaxNs = nil
        if watcher == nil { copy.processEnd = live?.end(by: liveness) }
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

extension RunRecord: RecoverableDocument {
    var liveRun: ULID? { state == .running ? id : nil }
    var isPossible: Bool { watched.allSatisfy { $0.watchedNs >= 0 } }

    func closed(by liveness: ProcessLiveness, _ live: LiveProcess? = nil) -> RunRecord? {
        guard state == .running else { return nil }
        guard (live?.status(by: liveness) ?? liveness.status(of: process, on: host)) == .dead else { return nil }
        var copy = self
        copy.state = .terminated
        copy.processEnd = live?.end(by: liveness)
        if let live { copy.note(waiting: live.record.status.waitingReports) }
        return copy
    }

    /// While its loops rest, a process writes nothing but still watches: as long as it lives, which its live record shows.
    func grown(by live: LiveProcess, _ liveness: ProcessLiveness) -> RunRecord {
        guard state == .running, live.status(by: liveness) == .alive else { return self }
        var copy = self
        copy.note(waiting: live.record.status.waitingReports)
        guard disarmed == nil, let age = ageNs else { return copy }
        for index in copy.watched.indices {
            let watching = Int64(clamping: copy.watched[index].watching ?? 0)
            let (more, overflow) = age.multipliedReportingOverflow(by: max(0, watching))
            copy.watched[index].watchedNs = copy.watched[index].watchedNs.addingSaturated(overflow ? .max : more)
        }
        return copy
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
        var told = writing ?? Writing()
        told.waiting = max(told.waiting, Int64(clamping: waiting))
        writing = told
    }
}
