import StallReports

extension StallFacts {
    /// What the thread waited for, and who had it.
    var lock: StyledText? {
        report.cause.lock.map { StyledText($0.told) }
    }

    /// Who waits for whom, all around.
    var circle: StyledText? {
        guard let cycle = report.cause.cycle, let first = cycle.first else { return nil }
        let links = cycle.map { "\($0.thread.numberAndName) → \($0.lock.kind) \($0.lock.address)" }
        return StyledText((links + [first.thread.numberAndName]).joined(separator: " → "))
    }
}

extension StallReport.Lock {
    fileprivate var told: String {
        let name = "\(kind) at \(address)" + (label.map { " (\($0))" } ?? "")
        if let gone = abandonedBy { return name + ", left behind by thread \(gone), which has ended" }
        guard let owner else { return name + (kind.canHaveOwner ? ", holder unknown" : ", which nobody owns") }
        let evidence = knownBy.map { ", known by its \($0)" } ?? ""
        return "\(name), held by \(owner.numberAndName)\(evidence)"
    }
}
