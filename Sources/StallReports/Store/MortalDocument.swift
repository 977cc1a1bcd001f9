/// A document that its process keeps up to date, and can leave behind.
protocol MortalDocument: JSONDocument {
    /// The document with its end noted, if its process is dead and did not do so; nil if there is nothing to note.
    func closed(by liveness: ProcessLiveness) -> Self?
    /// Whether its numbers can be true.
    var isPossible: Bool { get }
}

extension StallReport: MortalDocument {
    /// The last known duration stays, as the least it can have been.
    func closed(by liveness: ProcessLiveness) -> StallReport? {
        guard state == .ongoing, liveness.status(of: process, on: host) == .dead else { return nil }
        var copy = self
        copy.state = .terminated
        copy.durationMinNs = durationMinNs ?? durationNs
        copy.durationMaxNs = nil
        return copy
    }

    var isPossible: Bool { [durationNs, durationMinNs ?? 0, durationMaxNs ?? 0].allSatisfy { $0 >= 0 } }
}

extension RunRecord: MortalDocument {
    var isPossible: Bool { watched.allSatisfy { $0.watchedNs >= 0 } }

    func closed(by liveness: ProcessLiveness) -> RunRecord? {
        guard state == .running, liveness.status(of: process, on: host) == .dead else { return nil }
        var copy = self
        copy.state = .terminated
        return copy
    }
}
