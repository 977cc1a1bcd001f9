/// What a follower has still to tell, and which version of each file it has told.
struct CatchUp {
    enum Step {
        case tell(ReportFollower.Event)
        case read(ReportFileName)
    }

    private var steps: [Step] = []
    private var position = 0
    private var told: [ReportFileName: FileStatus] = [:]

    mutating func tell(_ event: ReportFollower.Event) { steps.append(.tell(event)) }

    mutating func read(_ names: [ReportFileName]) { steps += names.map { .read($0) } }

    mutating func next() -> Step? {
        guard position < steps.count else {
            (steps, position) = ([], 0)
            return nil
        }
        position += 1
        return steps[position - 1]
    }

    /// Whether this version of the file is untold; from now on it is told.
    mutating func isNews(_ name: ReportFileName, _ status: FileStatus) -> Bool {
        told.updateValue(status, forKey: name) != status
    }

    mutating func forget(_ name: ReportFileName) { told[name] = nil }

    /// Reads all that is there; what is not there any more is forgotten.
    mutating func readAll(_ names: [ReportFileName]) {
        let present = Set(names)
        told = told.filter { present.contains($0.key) }
        read(names)
    }
}
