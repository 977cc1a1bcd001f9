/// A document that its process keeps up to date, and can leave behind.
protocol MortalDocument: JSONDocument {
    /// The run whose live record may know more of it; nil when nothing more can be known.
    var liveRun: ULID? { get }
    /// The document with its end noted, if its process is dead and did not do so; nil if there is nothing to note.
    ///
    /// - Parameter live: the live record of its run, where there is one.
    func closed(by liveness: ProcessLiveness, _ live: LiveProcess?) -> Self?
    /// The document as its living process would write it now.
    func grown(by live: LiveProcess) -> Self
    /// Whether its numbers can be true.
    var isPossible: Bool { get }
}

extension StallReport: MortalDocument {
    var liveRun: ULID? { state == .ongoing ? run : nil }

    /// The last known duration stays, as the least it can have been.
    func closed(by liveness: ProcessLiveness, _ live: LiveProcess? = nil) -> StallReport? {
        guard state == .ongoing else { return nil }
        guard (live?.status(by: liveness) ?? liveness.status(of: process, on: host)) == .dead else { return nil }
        if let live, let stall = live.stall(of: id) { return closed(as: stall, live.end(by: liveness)) }
        var copy = self
        copy.state = .terminated
        copy.durationMinNs = durationMinNs ?? durationNs
        copy.durationMaxNs = nil
        copy.processEnd = live?.end(by: liveness)
        return copy
    }

    func grown(by live: LiveProcess) -> StallReport {
        guard state == .ongoing, let stall = live.stall(of: id), stall.durationNs > durationNs else { return self }
        var copy = self
        copy.grow(to: stall)
        return copy
    }

    var isPossible: Bool { [durationNs, durationMinNs ?? 0, durationMaxNs ?? 0].allSatisfy { $0 >= 0 } }
}

extension RunRecord: MortalDocument {
    var liveRun: ULID? { state == .running ? id : nil }
    var isPossible: Bool { watched.allSatisfy { $0.watchedNs >= 0 } }

    func closed(by liveness: ProcessLiveness, _ live: LiveProcess? = nil) -> RunRecord? {
        guard state == .running else { return nil }
        guard (live?.status(by: liveness) ?? liveness.status(of: process, on: host)) == .dead else { return nil }
        var copy = self
        copy.state = .terminated
        copy.processEnd = live?.end(by: liveness)
        return copy
    }

    func grown(by live: LiveProcess) -> RunRecord { self }
}
